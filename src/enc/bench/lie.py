"""What all lies have in common: a place that the plan chose, and what is told of it afterwards."""

from enc.bench.conduct import Conduct
from enc.bench.kinds import Planted
from enc.bench.log import Log
from enc.bench.plan import Plan
from enc.core.errors import MisuseError


class Lie(Conduct):
    done = ""
    """What was done, in words; empty until it is."""

    def __init__(self, plan: Plan) -> None:
        if plan.plant is None:
            raise MisuseError("a lie needs a place")
        self.plan, self.rng = plan, plan.random("lie")
        self.kind, self.place = plan.plant.kind, plan.plant.place
        self.seq_wrong = self.place
        """The seq that an auditor must name."""

    def planted(self, log: Log) -> Planted:
        if not self.done:
            raise MisuseError(f"{self.kind}: there was no opportunity in {self.plan.events} events")
        return Planted(self.kind, log.enclave.hex(), self.seq_wrong, self.done)
