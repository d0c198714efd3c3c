"""Ablations with random questions: phi keeps its initial value. They separate discovery from auxiliary prediction as such."""

from __future__ import annotations

from agents.tasks.gvf import GVF
from agents.tasks.reverse_gvf import ReverseGVF


class RandomGVF(GVF):
    learns_questions = False


class RandomReverseGVF(ReverseGVF):
    learns_questions = False
