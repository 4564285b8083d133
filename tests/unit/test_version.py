"""One project, one version."""

from pathlib import Path

import yaml

from dracpu_agent.version import __version__

ROOT = Path(__file__).parents[2]


def test_the_chart_installs_the_version_that_it_comes_with() -> None:
    chart = yaml.safe_load((ROOT / "charts/dra-cpu-operator/Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)
