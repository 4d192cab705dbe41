"""Write all dashboards: `python -m helm.monitoring`."""

from helm.monitoring.dashboards import DASHBOARDS
from helm.monitoring.panels import FOLDER, render

if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for dashboard in DASHBOARDS:
        (FOLDER / f"{dashboard.name}.json").write_text(render(dashboard))
