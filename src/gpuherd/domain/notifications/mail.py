"""A notice as a mail: plain text only, so that there is no markup to escape."""

from __future__ import annotations

from dataclasses import dataclass

from gpuherd.domain.notifications.notice import Notice, notice_lines


@dataclass(frozen=True)
class MailText:
    """What a mail says; the subject is one line."""

    subject: str
    body: str


def mail_text(notice: Notice) -> MailText:
    """Return what the mail says."""
    foot = f"{notice.type} at {notice.at.strftime('%Y-%m-%d %H:%M:%S UTC')}, sent by gpuherd"
    lines = [notice.title, "", *notice_lines(notice), "", "-- ", foot]
    # Else a name could be decoded to something that was never looked at (RFC 2047).
    title = notice.title.replace("=?", "= ?")
    return MailText(f"[gpuherd] {title}", "\n".join(lines) + "\n")
