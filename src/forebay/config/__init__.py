"""From a file that people edit to a plan that can start, or to all that is wrong with it."""

from forebay.config.load import load, plan_from
from forebay.config.plan import Plan, PlannedEndpoint, PlannedGroup, PlannedModel
from forebay.config.problems import ConfigWarning, InvalidConfig, Problem
from forebay.config.schema import ForebayConfig
from forebay.config.urls import BaseUrl

__all__ = [
    "BaseUrl",
    "ConfigWarning",
    "ForebayConfig",
    "InvalidConfig",
    "Plan",
    "PlannedEndpoint",
    "PlannedGroup",
    "PlannedModel",
    "Problem",
    "load",
    "plan_from",
]
