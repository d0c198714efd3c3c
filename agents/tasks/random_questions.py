"""Ablations with random questions: phi keeps its initial value. They separate discovery from auxiliary prediction as such."""

from __future__ import annotations

from typing import Any, ClassVar

from agents.tasks.gvf import GVF
from agents.tasks.reverse_gvf import ReverseGVF
from configs.tasks import QuestionConfig


class RandomGVF(GVF):
    Config: ClassVar[Any] = QuestionConfig
    learns_questions = False


class RandomReverseGVF(ReverseGVF):
    Config: ClassVar[Any] = QuestionConfig
    learns_questions = False
