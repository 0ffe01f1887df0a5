"""A deployment that is counted, for ``/metrics``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.adapters.telemetry.gauges import AdmissionGauges, ConfigurationMetrics, FitnessGauge
from forebay.adapters.telemetry.metrics import Metrics
from forebay.proxy.deployment import Deployment

if TYPE_CHECKING:
    from forebay.config.plan import Plan


class MeteredDeployment(Deployment):
    """A deployment with Prometheus metrics.

    Args:
        plan: the configuration to begin with.

    Attributes:
        metrics: of all of it.
    """

    def __init__(self, plan: Plan) -> None:
        self.metrics = Metrics()
        super().__init__(plan, self.metrics)
        for collector in (
            AdmissionGauges(self.limiter.admission, self.limiter.now),
            FitnessGauge(self.identity.fitness),
            ConfigurationMetrics(self.reload),
        ):
            self.metrics.watch(collector)
