"""With RELPOS_NO_SKIPS=1, as tools/python.sh --torch runs the tests, a test that is skipped has failed, but for reasons that no
environment of those tests can mend.  SPDX-License-Identifier: Apache-2.0"""
import os

import pytest

ALLOWED = ("no GPU", "'xformers", "AMX alone", "NumPy keeps one order")
STRICT = os.environ.get("RELPOS_NO_SKIPS") == "1"


def refuse(report):
    """Make a skipped report a failed one."""
    if STRICT and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if not any(word in reason for word in ALLOWED):
            report.outcome, report.longrepr = "failed", f"RELPOS_NO_SKIPS=1: {reason}"
    return report


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport():
    refuse((yield).get_result())


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report():
    refuse((yield).get_result())
