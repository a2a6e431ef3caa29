"""The base of all planted faults: the position that the plan chose, and the entry of
planted.json.
"""

from enc.bench.fault_kinds import Planted
from enc.bench.log import Log
from enc.bench.node_behaviour import NodeBehaviour
from enc.bench.plan import Plan
from enc.core.errors import MisuseError


class FaultyBehaviour(NodeBehaviour):
    done = ""
    """What was done, for planted.json; empty until it is done."""

    def __init__(self, plan: Plan) -> None:
        if plan.plant is None:
            raise MisuseError("plan: has no fault to plant")
        self.plan, self.rng = plan, plan.random("lie")
        self.kind, self.place = plan.plant.kind, plan.plant.place
        self.seq_wrong = self.place
        """The seq that an audit must report."""

    def planted(self, log: Log) -> Planted:
        if not self.done:
            raise MisuseError(f"{self.kind}: there was no opportunity in {self.plan.events} events")
        return Planted(self.kind, log.enclave.hex(), self.seq_wrong, self.done)
