"""Mutation testing: changes a module in one place at a time, and runs the tests that execute this place.

    python -m scripts.mutate enc.core.rules.v2.access        # or: make mutation MODULE=enc.core.rules.v2.access

`tests/mutation/modules.toml` names the tests of each module. A first run records which tests execute
which lines. Then each mutant runs in a fork of the process that has loaded the tests: the code of a
function is exchanged in place; a change outside of functions imports everything again. A mutant is
killed if a test fails or exceeds its limit of CPU time. `tests/mutation/survivors.txt` lists the known
survivors, each with the reason why it changes nothing that a test should see.
"""

import argparse
import ast
import gc
import os
import resource
import signal
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, spec_from_loader
from pathlib import Path
from time import process_time
from types import CodeType, FunctionType, ModuleType

import pytest
from coverage import Coverage
from scripts.mutants import Mutant, find_mutants

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "tests" / "mutation"
NEEDED = 0.95
"""Share of the mutants that tests must kill."""
OPTIONS = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "--tb=no", "--no-header", "--quick"]


def known_survivors(module: str) -> dict[str, str]:
    """Return the reasons of the listed survivors of a module, by mutant."""
    lines = (FOLDER / "survivors.txt").read_text().splitlines()
    pairs = (line.partition("  # ") for line in lines if line.startswith(f"{module}: "))
    return {name.removeprefix(f"{module}: "): reason for name, _, reason in pairs}


class MutationRun:
    """A plugin of pytest: where pytest would run the tests, it runs each mutant with its tests."""

    def __init__(self, module: str, path: Path, only: str) -> None:
        self.module, self.path = module, path
        self.tree = ast.parse(path.read_text())
        self.mutants = [each for each in find_mutants(self.tree) if only in each.name]
        self.survivors: list[Mutant] = []

    def pytest_configure(self) -> None:
        from hypothesis import settings  # pytest must be the first to import it

        settings.register_profile("mutation", max_examples=15, deadline=None, database=None, derandomize=True)
        settings.load_profile("mutation")

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            raise pytest.UsageError("the tests cannot be collected")
        gc.unfreeze()  # tests/conftest.py freezes what is loaded; functions are looked for among it
        self.functions = [each for each in gc.get_objects() if self._is_mine(each)]
        gc.freeze()  # collections in a fork would copy every page
        self.items = session.items
        self.lines, self.seconds = self._record(session)
        print(f"\n{len(self.items)} tests take {sum(self.seconds):.0f} s of CPU time", flush=True)
        for number, mutant in enumerate(self.mutants, 1):
            if not self._is_killed(session, mutant):
                self.survivors.append(mutant)
                print(f"\n  survives: {mutant.name}", flush=True)
            print(f"\r{number} of {len(self.mutants)}, {len(self.survivors)} survive", end="", flush=True)
        return True

    def _is_mine(self, value: object) -> bool:
        return isinstance(value, FunctionType) and value.__code__.co_filename == str(self.path)

    def _record(self, session: pytest.Session) -> tuple[dict[int, set[int]], list[float]]:
        """Run all tests once; return the tests that execute each line, and the seconds of each test."""
        seconds = list[float]()
        coverage = Coverage(data_file=None, include=[str(self.path)], config_file=False)
        coverage.start()
        for number, item in enumerate(self.items):
            before = process_time()
            coverage.switch_context(str(number))
            run_items(session, [item])
            seconds.append(process_time() - before)
        coverage.stop()
        if session.testsfailed:
            raise pytest.UsageError("the tests fail without a mutant")
        by_line = coverage.get_data().contexts_by_lineno(str(self.path))
        return {line: {int(number) for number in numbers if number} for line, numbers in by_line.items()}, seconds

    def _is_killed(self, session: pytest.Session, mutant: Mutant) -> bool:
        numbers = set(range(len(self.items)))
        if mutant.is_in_function:
            numbers = set().union(*(self.lines.get(line, set()) for line in mutant.lines))
        chosen = sorted(numbers, key=lambda number: self.seconds[number])
        if not chosen:
            return False
        limit = int(10 + 5 * sum(self.seconds[number] for number in chosen))
        pid = os.fork()
        if pid == 0:
            self._try(session, mutant, [self.items[number] for number in chosen], limit)
        _, status = os.waitpid(pid, 0)
        return status != 0

    def _try(self, session: pytest.Session, mutant: Mutant, items: list[pytest.Item], limit: int) -> None:
        """Run the tests with the mutant; end the process with 0 if all pass."""
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(60 + 3 * limit)  # a mutant may wait for ever
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
            mutant.apply()
            code = compile(self.tree, str(self.path), "exec")
            if mutant.is_in_function and self._exchange(code):
                run_items(session, items)
                failed = session.testsfailed
            else:
                failed = run_again(self.module, self.path, code, [item.nodeid for item in items])
            os._exit(1 if failed else 0)
        finally:
            os._exit(1)

    def _exchange(self, code: CodeType) -> bool:
        """Give each function of the module its mutated code; return False if that is impossible."""
        new = Counter[tuple[str, int]](), dict[tuple[str, int], CodeType]()
        for each in codes_in(code):
            new[0][each.co_qualname, each.co_firstlineno] += 1
            new[1][each.co_qualname, each.co_firstlineno] = each
        for function in self.functions:
            key = function.__code__.co_qualname, function.__code__.co_firstlineno
            if new[0][key] != 1 or new[1][key].co_freevars != function.__code__.co_freevars:
                return False
            function.__code__ = new[1][key]
        return True


def codes_in(code: CodeType) -> Iterator[CodeType]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each
            yield from codes_in(each)


def run_items(session: pytest.Session, items: list[pytest.Item]) -> None:
    """Run tests, up to the first that fails."""
    for item, following in zip(items, [*items[1:], None], strict=True):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.testsfailed:
            return


@dataclass
class MutatedImport:
    """Imports one module from a code object."""

    module: str
    path: Path
    code: CodeType

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name != self.module:
            return None
        return spec_from_loader(name, self, origin=str(self.path))  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        module.__file__ = str(self.path)
        exec(self.code, module.__dict__)


def run_again(module: str, path: Path, code: CodeType, tests: list[str]) -> int:
    """Run tests in this process with everything imported again; return pytest's exit code."""
    for name in [name for name in sys.modules if name.partition(".")[0] in ("enc", "tests")]:
        del sys.modules[name]
    sys.meta_path.insert(0, MutatedImport(module, path, code))
    return int(pytest.main([*OPTIONS, *tests]))


def run(module: str, only: str) -> bool:
    """Test one module; print what survives. Return whether enough was killed and every survivor is listed."""
    tests = tomllib.loads((FOLDER / "modules.toml").read_text())[module]
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise SystemExit(f"{module}: there is no such module")
    mutation = MutationRun(module, Path(spec.origin), only)
    print(f"{module}: {len(mutation.mutants)} mutants", flush=True)
    pid = os.fork()  # each module with tests and fixtures of its own
    if pid:
        return os.waitpid(pid, 0)[1] == 0
    has_run = pytest.main([*OPTIONS, "-s", *tests], plugins=[mutation]) == 0
    os._exit(0 if has_run and report(module, mutation, not only) else 1)


def report(module: str, mutation: MutationRun, is_whole: bool) -> bool:
    known = known_survivors(module)
    names = {each.name for each in mutation.survivors}
    new, gone = names - set(known), set(known) - names if is_whole else set()
    count = len(mutation.mutants)
    share = 1 - len(names) / max(count, 1)
    print(f"\n{module}: {count} mutants, {count - len(names)} killed ({share:.1%}), {len(names)} survive")
    for text, found in (("not listed", new), ("listed, but killed", gone)):
        for name in sorted(found):
            print(f"  {text}: {module}: {name}")
    sys.stdout.flush()
    return not new and not gone and share >= NEEDED


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("module", nargs="*", help="by default, all that modules.toml names")
    parser.add_argument("--only", default="", metavar="TEXT", help="only the mutants whose name contains this")
    asked = parser.parse_args()
    modules = asked.module or list(tomllib.loads((FOLDER / "modules.toml").read_text()))
    results = [run(module, asked.only) for module in modules]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
