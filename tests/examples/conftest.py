"""The example packages are imported from where they are, as after `pip install -e`."""

import sys

from tests.helpers.running import ROOT

PACKAGE = ROOT / "examples" / "hindcast_tasks"

if str(PACKAGE) not in sys.path:
    sys.path.insert(0, str(PACKAGE))
