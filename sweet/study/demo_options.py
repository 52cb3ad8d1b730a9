"""The options of `sweet demo`: those of the demo, and of the study in its place."""

from __future__ import annotations

from pydantic import Field

from sweet.stages.base import OPERATIONAL, about
from sweet.study.demo import DemoConfig
from sweet.study.settings import Equal, MethodNames, StudyTasks
from sweet.tasks.micro.family import MICRO


class DemoOptions(DemoConfig):
    main_options = ("train_tasks", "samples", "seed", "eval_tasks", "rounds", "study", "seeds", "methods", "tasks")

    study: bool = Field(default=False, json_schema_extra=about("Study"))
    """Compare the methods, and ablations of SWEET, over several seeds; RUN is then the study's folder (default:
    runs/study), and the same command resumes the study."""
    seeds: int | None = Field(default=None, ge=1, json_schema_extra=about("Study"))
    """With --study: number of seeds of data, training and sampling, starting with --seed; default: 5."""
    methods: MethodNames = Field(default=(), json_schema_extra=about("Study"))
    """With --study: methods to compare, separated by commas; default: all."""
    figures: bool = Field(default=True, json_schema_extra=about("Study"))
    """With --study: also learning curves over generated tokens, best of N, and credit by kind of turn."""
    tasks: StudyTasks = Field(default=MICRO.name, json_schema_extra=about("Study"))
    """With --study: the generated dataset: micro, micro-long or micro-parts."""
    equal: Equal = Field(default="tokens", json_schema_extra=about("Study"))
    """With --study: what is the same for all methods. tokens: those that the agent generates, which are dialogues
    and sampled replies; methods that learn from whole dialogues get so many more. dialogues: the offline dialogues."""
    jobs: int | None = Field(default=None, ge=1, json_schema_extra=about("Study", OPERATIONAL))
    """With --study: seeds that run at the same time; default: the number of cores."""
