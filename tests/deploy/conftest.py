"""The chart is run where there is a Helm; where there is none, pytest says so at its end."""

from tests.support import toolchains

collect_ignore_glob = [] if toolchains.HELM.exists() else ["test_chart_running.py"]
