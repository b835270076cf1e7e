"""Performs the effects of the loop: the only module that calls the worker's ports. It also checks
the order of durability."""

from __future__ import annotations

from collections import deque

from millwheel.core.model.names import ShardName
from millwheel.engine.workers import effects as ef
from millwheel.engine.workers.ports import WorkerPorts
from millwheel.errors import InvariantError, unreachable


class Performing:
    """Keeps, from the journal's answers alone, the durable commits of each shard, and checks the
    loop's effects against them."""

    def __init__(self, ports: WorkerPorts) -> None:
        self._ports = ports
        self._submitted: deque[ef.CommitGroup] = deque()
        self._durable: dict[ShardName, int] = {}
        self._holds = False

    def perform(self, ready: ef.Ready, holds: bool = False) -> int | None:
        """Perform all of it, in order. The segment of the journal that holds the group, if it is
        durable already: then messages wait for :meth:`flush` if it ``holds`` them, and share a
        frame with the messages that the group releases."""
        transport = self._ports.transport
        for refusal in ready.refusals:
            transport.refuse(
                refusal.reply_to, refusal.channel, refusal.target, refusal.epoch, refusal.moved
            )
        for ack in ready.acks:
            # Earlier, the sender would forget records whose commit a crash may take back (mutation
            # ack_before_commit).
            self._check(ack.target, ack.rests_on, "acks")
            transport.ack(ack.reply_to, ack.channel, ack.target, ack.epoch, ack.up_to)
        for out in ready.sends:
            # Earlier, other workers would apply records that a crash undoes (mutation
            # productions_sent_before_commit).
            self._check(out.sender, out.send.rests_on, "sends")
            transport.send(out.address, out.token, out.send)
        for effect in ready.others:
            self._do(effect)
        self._holds = holds and ready.group is not None and ready.group.inline
        if not self._holds:
            transport.flush()
        return None if ready.group is None else self._write(ready.group)

    def flush(self) -> None:
        """Hand over the held messages."""
        if self._holds:
            self._holds = False
            self._ports.transport.flush()

    def opened(self, shard: ShardName, number: int) -> None:
        """Note the commits that a recovery found as durable."""
        self._durable[shard] = number

    def written(self) -> None:
        """Note that the journal has made the oldest submitted group durable."""
        # An answer to no group of ours would make the next group durable before it is written.
        if not self._submitted:
            raise InvariantError("the journal has written a group that it was not given")
        last = self._submitted.popleft().last
        for shard, number in last.items():
            # In another order, an ack would leave although a commit before it may still be lost.
            if number < self._durable.get(shard, 0):
                raise InvariantError(
                    f"the journal made commit {number} of {shard} durable after"
                    f" {self._durable[shard]}"
                )
        self._durable.update(last)

    def _check(self, shard: ShardName, number: int, what: str) -> None:
        if number > self._durable.get(shard, 0):
            raise self._too_early(shard, number, what)

    def _answer(self, effect: ef.AnswerQueries) -> None:
        for shard, number in effect.rests_on.items():
            # Earlier, a reader would see state that a crash may undo (mutation
            # answers_before_commit).
            self._check(shard, number, "answers")
        effect.reply(effect.outcomes)

    def _too_early(self, shard: ShardName, number: int, what: str) -> InvariantError:
        durable = self._durable.get(shard, 0)
        return InvariantError(
            f"{shard} {what} before its commit {number} is durable; durable is {durable}"
        )

    def _write(self, group: ef.CommitGroup) -> int | None:
        segment = self._ports.journal.write_now(group.entries) if group.inline else None
        self._submitted.append(group)
        if segment is None:
            self._ports.journal.submit(group.entries)
        else:
            self.written()
        return segment

    def _do(self, effect: ef.Effect) -> None:
        ports = self._ports
        match effect:
            case ef.Report():
                ports.reports.report(effect.by_node)
            case ef.ReportLoad():
                ports.master.load(effect.loads)
            case ef.PublishSnapshot():
                # The next owner starts from it: a commit that a seal cuts off would be in there.
                self._check(effect.shard, effect.last_commit, "publishes")
                ports.snapshots.publish(effect.shard, effect.token, effect.last_commit, effect.path)
            case ef.DeleteSegment():
                ports.journal.delete_segment(effect.segment)
            case ef.Recover():
                ports.recoveries.recover(effect.node, effect.entry)
            case ef.Follow():
                ports.followers.follow(effect.entry)
            case ef.Unfollow():
                ports.followers.drop(effect.shard)
            case ef.ForgetReports():
                ports.reports.forget(effect.shard)
            case ef.Release():
                # The next owner will look for that commit in the snapshot.
                self._check(effect.shard, effect.last_commit, "releases")
                ports.master.released(effect.shard, effect.token, effect.last_commit)
            case ef.AnswerOrder():
                ports.savepoints.answer(effect.answer)
            case ef.WithdrawAnswers():
                ports.savepoints.withdraw()
            case ef.SaveCopy():
                self._check(effect.shard, effect.standing.commit, "saves")
                ports.savepoints.save(effect.order, effect.shard, effect.standing, effect.path)
            case ef.AnswerQueries():
                self._answer(effect)
            case _:
                unreachable(effect)
