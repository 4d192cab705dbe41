"""What holds for a transaction where its prepare says nothing else."""

from dataclasses import dataclass


@dataclass(frozen=True)
class TransactionDefaults:
    """See docs/CONFIGURATION.md, [transactions]."""

    check_interval_ms: int = 60_000
    checks_max: int = 15
    age_ms_max: int = 3_600_000
