"""Auxiliary tasks for Hindcast that live outside of it."""

from hindcast_tasks.horizons import Horizons
from hindcast_tasks.inverse_dynamics import InverseDynamics
from hindcast_tasks.self_prediction import SelfPrediction

__all__ = ["Horizons", "InverseDynamics", "SelfPrediction"]
