"""What the cloud wrote is read strictly before a program or a browser gets it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuherd.entrypoints.cli.cli_errors import CommandError
from gpuherd.entrypoints.cli.ssh_commands import is_web_address, page_of
from gpuherd.entrypoints.cli.ssh_connection import SshTarget, parse_ssh, ssh_target
from tests.cli.support import details

HTTP = {"port": 8888, "endpoint": "https://x-8888.cluster.example", "type": "http"}
TCP = {"port": 22, "endpoint": "proxy.example:30022", "type": "tcp"}


@pytest.mark.parametrize(
    ("words", "target"),
    [
        ("ssh root@proxy.example -p 2222", SshTarget("root", "proxy.example", 2222)),
        ("ssh -p 2222 root@proxy.example", SshTarget("root", "proxy.example", 2222)),
        ("ssh root@10.0.0.1", SshTarget("root", "10.0.0.1", 22)),
        ("ssh root@2001:db8::1 -p 22", SshTarget("root", "2001:db8::1", 22)),
    ],
)
def test_an_ssh_command_is_taken_apart(words: str, target: SshTarget) -> None:
    assert parse_ssh(words) == target


@pytest.mark.parametrize(
    "words",
    [
        "ssh -oProxyCommand=id@x -p 22",
        "ssh root@-oProxyCommand=id",
        "ssh -oProxyCommand=id root@host",
        "ssh root@host -p 22 -p 23",
        "ssh root@host; id",
        "ssh root@host id",
        "ssh 'root@host id'",
        "ssh root@$(id)",
        "ssh root@host -p 0",
        "ssh root@host -p 65536",
        "ssh root@host -p",
        "ssh root@host -p -1",
        "ssh -J@host",
        "ssh host",
        "ssh @host",
        "ssh root@",
        "ssh root@ho_st'",
        "ssh root@fe80::1%eth0",
        "scp root@host",
        "ssh",
        "",
    ],
)
def test_an_odd_ssh_command_is_refused(words: str) -> None:
    with pytest.raises(ValueError):
        parse_ssh(words)


@given(st.text(), st.text(), st.text())
def test_no_word_of_the_cloud_becomes_an_option(user: str, host: str, port: str) -> None:
    for words in (user, f"ssh {user}@{host} -p {port}", f"ssh -p {port} {user}@{host}", f"ssh {user} {host}"):
        try:
            target = parse_ssh(words)
        except ValueError:
            continue
        program, flag, number, destination = target.command()
        assert (program, flag, number.isdecimal()) == ("ssh", "-p", True)
        assert not destination.startswith("-")
        assert not target.host.startswith("-")
        assert destination.isprintable()
        assert not set(destination) & set(" ;|&$`'\"()<>\\")


def test_what_a_user_adds_comes_after_the_host() -> None:
    assert SshTarget("root", "h", 22).command(["nvidia-smi", "-L"])[3:] == ["root@h", "nvidia-smi", "-L"]


@pytest.mark.parametrize(
    ("status", "advice"),
    [
        ("creating", "gpuherd wait train-1"),
        ("exited", "gpuherd start train-1"),
        ("failed", "gpuherd why train-1"),
        ("deleting", "gpuherd why train-1"),
        ("something new", "gpuherd wait train-1"),
    ],
)
def test_what_is_not_ready_says_what_to_do(status: str, advice: str) -> None:
    for way in (ssh_target, lambda it: page_of(it, None)):
        with pytest.raises(CommandError) as refused:
            way(dict(details(status)))
        report = refused.value.report
        assert (report.code, report.suggestion) == ("INSTANCE_NOT_READY", advice)


def test_ssh_works_while_the_health_check_goes_on_and_a_browser_waits() -> None:
    checking = dict(details("health_checking", connectionDetails={"ssh": "ssh root@host"}))
    assert ssh_target(checking).host == "host"
    with pytest.raises(CommandError):
        page_of(checking, None)


def test_no_ssh_and_an_odd_one_are_told_apart() -> None:
    for words, code in ((None, "NO_WAY_IN"), ("ssh -x root@h", "ODD_SSH_COMMAND")):
        with pytest.raises(CommandError) as refused:
            ssh_target(dict(details("ready", connectionDetails={"ssh": words})))
        assert refused.value.report.code == code


def test_jupyter_goes_first_then_the_only_page() -> None:
    ready = details("ready", portMappings=[TCP, HTTP])
    assert page_of(dict(ready), None) == HTTP["endpoint"]
    jupyter = {"jupyter": "https://jupyter.example/?token=x"}
    assert page_of(dict(ready | {"connectionDetails": jupyter}), None) == jupyter["jupyter"]


def test_of_several_pages_one_must_be_chosen() -> None:
    other = {"port": 80, "endpoint": "https://x-80.cluster.example", "type": "http"}
    both = dict(details("ready", portMappings=[HTTP, other]))
    with pytest.raises(CommandError) as refused:
        page_of(both, None)
    assert refused.value.report.suggestion.endswith("gpuherd open train-1 --port 80")
    assert page_of(both, 8888) == HTTP["endpoint"]
    with pytest.raises(CommandError, match="no HTTP on port 22; it has 80, 8888"):
        page_of(both, 22)


@pytest.mark.parametrize("odd", [None, [{"port": "x", "endpoint": "http://x", "type": "http"}]])
def test_odd_ports_are_no_pages(odd: object) -> None:
    with pytest.raises(CommandError) as refused:
        page_of(dict(details("ready", portMappings=odd)), None)
    assert refused.value.report.code == "NO_WAY_IN"


@pytest.mark.parametrize(
    "address",
    [
        "file:///etc/passwd",
        "javascript:alert(1)",
        "https://user:pass@host/",
        "https://-x/",
        "https://host/\x1b[0m",
        "https://host/a b",
        "http://",
        "http://[::1",
        "http://host:99999/",
        "-h",
        "",
    ],
)
def test_a_browser_is_not_sent_everywhere(address: str) -> None:
    assert not is_web_address(address)
    with pytest.raises(CommandError):
        page_of(dict(details("ready", portMappings=[HTTP | {"endpoint": address}])), None)


def test_a_plain_address_is_fine() -> None:
    assert is_web_address("https://x-8888.us-1.gpu-instance.novita.ai/lab?token=abc#top")
    assert is_web_address("http://127.0.0.1:8090/_apps/x/8888")
