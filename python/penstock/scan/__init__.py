"""`penstock scan`: what starves a device, found in Python sources by reading them. Nothing is imported or run.

from penstock.scan import scan_paths
for finding in scan_paths(["train.py"]).findings:
    print(finding.path, finding.line, finding.rule, finding.message)
"""

from .rules import RULES, Finding, Rule
from .run import Result, scan_paths, scan_source

__all__ = ["RULES", "Finding", "Result", "Rule", "scan_paths", "scan_source"]
