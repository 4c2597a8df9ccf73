"""Bill rows as Novita writes them, on good days and bad ones."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from gpuherd.adapters.novita.novita_billing import NovitaBilling, NovitaVolumes, read_charge
from gpuherd.adapters.novita.novita_call import read_reply
from gpuherd.domain.cloud.network_volume import VolumeOrder
from gpuherd.domain.errors import CloudRefused, CloudUnavailable, Conflict, NotFound, OutcomeUnknown
from gpuherd.domain.money.bill import BillCategory
from gpuherd.resilience.rate_limiter import Lane

MIDNIGHT = datetime(2026, 11, 2, tzinfo=UTC)
DAY = timedelta(days=1)
ROW: dict[str, Any] = {
    "userId": "owner-of-the-account",
    "startTime": str(int(MIDNIGHT.timestamp())),
    "endTime": str(int(MIDNIGHT.timestamp()) + 3599),
    "billingMethod": "1",
    "productName": "RTX 4090 24GB",
    "category": "gpu",
    "ownerID": "m1",
    "billNum0": "3600",
    "basePrice0": "35000",
    "discountPrice0": "17500",
    "pricePrecision": "10",
    "amount": "1749",
    "voucherAmount": "100",
    "amountDecimal": "0.174951388889",
    "somethingNew": {"a": [1]},
}


class FakeTransport:
    """Answers every read with a body, and notes what was asked."""

    def __init__(self, body: dict[str, Any]) -> None:
        self.body = body
        self.asked: list[tuple[str, dict[str, str], Lane]] = []

    async def read(self, path: str, params: Any = None, *, lane: Lane = Lane.RENTAL) -> dict[str, Any]:
        self.asked.append((path, dict(params or {}), lane))
        return self.body


def test_the_exact_amount_is_believed_before_the_rounded_one():
    row = read_charge(ROW, BillCategory.GPU)
    assert row is not None
    assert row.amount_usd == Decimal("0.174951388889")
    assert row.voucher_usd == Decimal("0.01")
    assert (row.owner_id, row.begin, row.quantity) == ("m1", MIDNIGHT, 3600)


def test_without_an_exact_amount_the_rounded_one_counts():
    row = read_charge({**ROW, "amountDecimal": "n/a"}, BillCategory.GPU)
    assert row is not None
    assert row.amount_usd == Decimal("0.1749")


def test_the_price_is_the_one_after_discounts():
    row = read_charge(ROW, BillCategory.GPU)
    assert row is not None
    assert row.unit_usd == Decimal("0.175")


@pytest.mark.parametrize(
    "change",
    [
        {"startTime": "0"},
        {"startTime": None},
        {"amount": None, "amountDecimal": None},
        {"amount": "x", "amountDecimal": []},
    ],
)
def test_a_row_that_says_neither_when_nor_how_much_is_no_row(change: dict[str, Any]):
    assert read_charge({**ROW, **change}, BillCategory.GPU) is None


@pytest.mark.parametrize("junk", [None, 7, "row", []])
def test_what_is_no_object_is_no_row(junk: object):
    assert read_charge(junk, BillCategory.GPU) is None


def test_nothing_about_the_account_is_kept():
    kept = read_charge(ROW, BillCategory.GPU)
    assert "owner-of-the-account" not in repr(kept)


async def test_bills_are_asked_for_behind_everything_else_and_up_to_the_last_second_of_the_day():
    transport = FakeTransport({"bills": [ROW]})
    rows = await NovitaBilling(transport).charges(MIDNIGHT, MIDNIGHT + DAY)  # type: ignore[arg-type]
    assert {lane for _, _, lane in transport.asked} == {Lane.BROWSE}
    ends = [int(params["endTime"]) for _, params, _ in transport.asked]
    assert max(ends) == int((MIDNIGHT + DAY).timestamp()) - 1
    # Every question got the same row: it is counted where it begins, once in each category.
    assert [row.category for row in rows] == [BillCategory.GPU, BillCategory.STORAGE]


async def test_the_answer_to_one_question_has_six_hours_of_cards_at_most():
    transport = FakeTransport({"bills": []})
    await NovitaBilling(transport).charges(MIDNIGHT, MIDNIGHT + 2 * DAY)  # type: ignore[arg-type]
    lengths = {
        params["productCategory"]: int(params["endTime"]) + 1 - int(params["startTime"])
        for _, params, _ in transport.asked
    }
    assert lengths == {"gpu": 6 * 3600, "cloud_storage": 24 * 3600}
    assert len(transport.asked) == 10


@pytest.mark.parametrize("body", [{}, {"bills": {}}, {"bills": "none"}])
async def test_a_reply_without_rows_is_unreadable_and_not_an_empty_bill(body: dict[str, Any]):
    with pytest.raises(CloudUnavailable):
        await NovitaBilling(FakeTransport(body)).charges(MIDNIGHT, MIDNIGHT + DAY)  # type: ignore[arg-type]


@pytest.mark.parametrize(("said", "usd"), [("123456", "12.3456"), ("-5", "-0.0005"), (0, "0")])
async def test_the_balance_is_in_ten_thousandths(said: object, usd: str):
    transport = FakeTransport(json.loads(json.dumps({"availableBalance": said})))
    assert await NovitaBilling(transport).available_usd() == Decimal(usd)  # type: ignore[arg-type]


@pytest.mark.parametrize("said", [None, "", "much", []])
async def test_a_balance_that_makes_no_sense_is_unreadable(said: object):
    with pytest.raises(CloudUnavailable):
        await NovitaBilling(FakeTransport({"availableBalance": said})).available_usd()  # type: ignore[arg-type]


async def test_a_list_of_volumes_with_a_gap_is_unreadable():
    body = {"data": [{"storageId": "v1", "storageSize": 10}], "total": 2}
    with pytest.raises(CloudUnavailable):
        await NovitaBilling(FakeTransport(body)).list_volumes()  # type: ignore[arg-type]


ORDER = VolumeOrder("data", "us-ca-6", 100)


class AnsweringTransport:
    """Answers every change with the same bytes."""

    def __init__(self, status: int, raw: bytes) -> None:
        self._reply = read_reply(status, raw)
        self.sent: list[tuple[str, dict[str, Any]]] = []

    async def change(self, path: str, body: dict[str, Any], **_: Any) -> Any:
        self.sent.append((path, body))
        return self._reply


def refused(reason: str, status: int = 400) -> AnsweringTransport:
    return AnsweringTransport(
        status, json.dumps({"code": status, "reason": reason, "message": "no"}).encode()
    )


@pytest.mark.parametrize("raw", [b'"v-1"', b'{"storageId": "v-1", "storageName": "data"}'])
async def test_the_id_may_stand_alone_or_in_an_object(raw: bytes) -> None:
    transport = AnsweringTransport(200, raw)
    assert await NovitaVolumes(transport).create_volume(ORDER) == "v-1"  # type: ignore[arg-type]
    body = {"clusterId": "us-ca-6", "storageName": "data", "storageSize": 100}
    assert transport.sent == [("/networkstorage/create", body)]


@pytest.mark.parametrize("raw", [b"", b"{}", b"<html>", b'""', b"[1]", b'{"storageId": 5}'])
async def test_an_answer_without_an_id_proves_nothing(raw: bytes) -> None:
    with pytest.raises(OutcomeUnknown):
        await NovitaVolumes(AnsweringTransport(200, raw)).create_volume(ORDER)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("reason", "kind", "code"),
    [
        ("NETWORK_STORAGE_NOT_FOUND", NotFound, "VOLUME_NOT_FOUND"),
        ("NETWORK_STORAGE_IN_USE", Conflict, "VOLUME_IN_USE"),
        ("CUR_CLUSTER_NETWORK_STORAGE_NOT_SUPPORT", Conflict, "VOLUMES_NOT_SUPPORTED"),
        ("NETWORK_STORAGE_TOO_LARGE", CloudRefused, "CLOUD_REFUSED"),
    ],
)
async def test_a_clear_no_is_told_in_our_words(reason: str, kind: type[Exception], code: str) -> None:
    volumes = NovitaVolumes(refused(reason))  # type: ignore[arg-type]
    for call in (volumes.create_volume(ORDER), volumes.delete_volume("v-1")):
        with pytest.raises(kind) as caught:
            await call
        assert getattr(caught.value, "code", "") == code
