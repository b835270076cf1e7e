"""Frames are put together and taken apart as protobuf would."""

from __future__ import annotations

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from millwheel.adapters.exchange.frames import Building, taken_apart
from millwheel.adapters.pb import worker_pb2 as pb

LARGE = 70_000


def delivery(index: int) -> pb.Delivery:
    return pb.Delivery(
        channel="c", node="n", target="t", target_token=2**63, epoch=1, index=index, traces=b"t"
    )


def frame_of(*batches: bytes) -> Building:
    building = Building()
    building.message.acks.add(channel="c", index=300)
    building.message.refusals.add(channel="d", reason=pb.Refusal.MOVED)
    for index, batch in enumerate(batches):
        building.add(delivery(index), [batch[:3], batch[3:]])
    return building


@pytest.mark.parametrize("size", [0, 1, 127, 128, LARGE, 1 << 21])
def test_a_frame_is_a_message_of_protobuf(size: int) -> None:
    batches = [b"first", bytes(size), b"third"]
    told = pb.Frame.FromString(b"".join(frame_of(*batches).pieces()))
    expected = [delivery(index) for index in range(3)]
    for each, batch in zip(expected, batches, strict=True):
        each.batch = batch
    assert list(told.deliveries) == expected
    assert [ack.index for ack in told.acks] == [300]
    assert [refusal.reason for refusal in told.refusals] == [pb.Refusal.MOVED]


@pytest.mark.parametrize("size", [5, LARGE])
def test_a_frame_that_protobuf_made_is_taken_apart(size: int) -> None:
    given = [delivery(index) for index in range(3)]
    told = pb.Frame(acks=[pb.Ack(index=7)], refusals=[pb.Refusal(epoch=2)])
    for each in given:
        told.deliveries.add(batch=b"x" * size).MergeFrom(each)
    frame = taken_apart(memoryview(told.SerializeToString()))
    found = [
        (each.index, each.channel, each.traces, bytes(batch)) for each, batch in frame.deliveries
    ]
    assert found == [(index, "c", b"t", b"x" * size) for index in range(3)]
    assert [ack.index for ack in frame.acks] == [7]
    assert [refusal.epoch for refusal in frame.refusals] == [2]


def test_the_batches_of_a_large_frame_are_parts_of_it() -> None:
    data = bytearray(b"".join(frame_of(b"a" * LARGE).pieces()))
    [(_, batch)] = taken_apart(data).deliveries
    assert isinstance(batch, memoryview)
    assert batch.obj is data


def test_nothing_queued_is_no_frame() -> None:
    assert Building().pieces() == []


@given(st.binary(max_size=30), st.integers(0, 200))
def test_any_bytes_are_a_frame_or_refused(noise: bytes, cut: int) -> None:
    whole = b"".join(frame_of(b"a" * LARGE).pieces())
    for data in (
        noise + whole,
        whole[: len(whole) - cut] + noise,
        whole[:cut] + noise + whole[cut:],
    ):
        try:
            expected = pb.Frame.FromString(data)
        except DecodeError:
            continue  # taken_apart may be less strict about what is within a delivery
        try:
            found = taken_apart(data)
        except DecodeError:
            continue  # groups, which nobody sends, are not taken apart
        assert [bytes(batch) for _, batch in found.deliveries] == [
            each.batch for each in expected.deliveries
        ]
        assert list(found.acks) == list(expected.acks)
    with pytest.raises(DecodeError):
        taken_apart(whole[:-1])
