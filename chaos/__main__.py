"""`python -m chaos`: play scenarios against a real cluster on this machine, and judge them."""

import argparse
import asyncio
import secrets
import signal
import sys
import tempfile
from pathlib import Path

from chaos.node_process import TREE
from chaos.runner import Options, Result, play, table
from chaos.scenarios import SCENARIOS, SHORT, Scenario


def main(arguments: list[str] | None = None) -> int:
    """1 if a promise was broken, or a scenario could not be played to its end."""
    parsed = _parser().parse_args(arguments)
    if parsed.list:
        for one in SCENARIOS.values():
            sys.stdout.write(f"{one.name:18}{one.what}\n")
        return 0
    chosen = [SCENARIOS[name] for name in parsed.scenario or SCENARIOS]
    if parsed.mix == "short":
        chosen = [one for one in chosen if one.name in SHORT]
    if parsed.keep is not None:
        return asyncio.run(_all(chosen, parsed, parsed.keep))
    # Not removed: what went wrong is in it, and what went well was removed already.
    folder = Path(tempfile.mkdtemp(prefix="hourwheel-chaos-"))
    code = asyncio.run(_all(chosen, parsed, folder))
    if not code:
        folder.rmdir()
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m chaos", description=__doc__)
    parser.add_argument("--list", action="store_true", help="say what scenarios there are")
    parser.add_argument("--scenario", action="append", choices=SCENARIOS, help="may be repeated")
    parser.add_argument("--mix", choices=("short", "all"), default="all", help="which of them")
    parser.add_argument("--rounds", type=int, help="of each scenario")
    parser.add_argument("--minutes", type=float, help="for each scenario, instead of rounds")
    parser.add_argument("--seed", type=int, help="of all choices; printed if not given")
    parser.add_argument("--pending", type=int, default=0, help="messages of the far future, first")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep histories, logs, data there")
    networks = ("auto", "loopback", "proxies", "namespaces")
    parser.add_argument("--network", choices=networks, default="auto")
    audits = "let `hourwheel audit` check what nodes have left; needs Java"
    parser.add_argument("--audit", action="store_true", help=audits)
    secure = "TLS, users and permissions in every scenario"
    parser.add_argument("--secure", action="store_true", help=secure)
    hangs = "how long anything may take, in seconds: more on a machine that others use"
    parser.add_argument("--hang-s", type=float, default=Options.hang_s, help=hangs)
    parser.add_argument("--tree", type=Path, default=TREE, help="the checkout whose nodes are run")
    return parser


async def _all(chosen: list[Scenario], parsed: argparse.Namespace, folder: Path) -> int:
    task = asyncio.current_task()
    if task is not None:  # so that everything is healed and ended
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    seed = secrets.randbits(32) if parsed.seed is None else parsed.seed
    _say(f"seed {seed}")
    options = Options(
        folder=folder,
        rounds=parsed.rounds,
        minutes=parsed.minutes,
        keeps_all=parsed.keep is not None,
        pending=parsed.pending,
        tree=parsed.tree,
        network=parsed.network,
        audits=parsed.audit,
        is_guarded=parsed.secure,
        hang_s=parsed.hang_s,
    )
    results: list[Result] = []
    for scenario in chosen:
        result = await play(scenario, seed, options, _say)
        results.append(result)
        if not result.is_good:
            _say(result.report())
    _say(table(results))
    bad = [one for one in results if not one.is_good]
    if bad:
        _say(f"see {folder}")
    return 1 if bad else 0


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
