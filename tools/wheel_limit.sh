# wheel_limit.sh -- the size in bytes that the wheel of the Python package must stay below. docs/contributing.md says why.
# SPDX-License-Identifier: Apache-2.0
wheel_limit=1780000
page_limit=1660000 # of the page of relpos explore, which a wheel of tools/release.sh contains
