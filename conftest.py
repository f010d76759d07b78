"""What is not looked at for examples: the modules of hosts, whose programs tests/hosts runs."""

from pathlib import Path

INTEGRATIONS = Path(__file__).parent / "src" / "hitrate" / "integrations"
# Those for tables have no host around them.
ALONE = {"__init__", "boosting", "lightgbm", "xgboost"}
collect_ignore = [str(module) for module in INTEGRATIONS.glob("*.py") if module.stem not in ALONE]
