from tests.charts.conftest import helm

__all__ = ["helm"]
