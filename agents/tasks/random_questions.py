"""The controls: questions as they were drawn, never learnt. They tell discovery from mere auxiliary prediction."""

from __future__ import annotations

from agents.tasks.gvf import GVF
from agents.tasks.reverse_gvf import ReverseGVF


class RandomGVF(GVF):
    learns_questions = False


class RandomReverseGVF(ReverseGVF):
    learns_questions = False
