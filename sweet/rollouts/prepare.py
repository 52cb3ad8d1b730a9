"""From the options of a rollout to dialogues that are ready to be played: tasks, humans, judge, pages, models, meta.

What can be checked before a server is asked is checked here. `sweet play` prepares its dialogues in the same way, with
a person on one side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from sweet.errors import UsageError
from sweet.hints import option
from sweet.humans.asking import SAMPLING as HUMAN_SAMPLING
from sweet.humans.base import Human
from sweet.humans.connect import open_humans
from sweet.judges.control import CreditScorer, check_credit_known
from sweet.judges.opening import NO_JUDGE, ChosenJudge, critic_settings
from sweet.judges.options import CRITIC_JUDGES, LOOKAHEAD, RUN_CRITICS, check_judge_options, find_critic
from sweet.llm.base import ChatClient, Reply
from sweet.llm.connect import check_context, check_tools, servers_of_models, settings_of, warn_of_effort
from sweet.llm.pretrained import model_folder
from sweet.llm.scripted import SCRIPTED, ScriptedClient, has_model
from sweet.render.page import Renderer, RenderSettings
from sweet.render.requirements import check_rendering
from sweet.render.store import SCREENSHOTS
from sweet.render.window import window_name
from sweet.rollouts.assignments import PlannedHumans, load_tasks, plan_humans
from sweet.rollouts.config import CHOOSERS_OF_OPTION, RolloutConfig
from sweet.rollouts.dialogue import Rules
from sweet.rollouts.sides import check_agent, check_harness, check_human, check_vision, rendering_of
from sweet.runs.manifest import Artifact
from sweet.runs.run import Run
from sweet.stages.artifacts import AGENT_TEXT, given_model, given_prompts, prompts_of
from sweet.stages.base import PlannedConfig, Reporter, digest_of
from sweet.stages.frame import AskedModel, Frame
from sweet.stages.meta import RolloutsMeta
from sweet.tasks.base import Task
from sweet.tasks.kind import TaskKind, opening, system_prompt
from sweet.tasks.prompts import read_prompt
from sweet.tasks.registry import task_kind

Opens = Callable[[AskedModel], AbstractAsyncContextManager[ChatClient]]
"""Opens a model (`sweet.stages.frame.Frame.client`)."""


@dataclass(frozen=True)
class Dialogues:
    """The dialogues of a rollout, ready to be played.

    Attributes:
        config: with the path of an agent that was given by its id.
        source: the dataset.
        judge: chooses among several replies; None where one is sampled at each turn.
        rendering: None for tasks without pages.
    """

    config: RolloutConfig
    kind: TaskKind
    source: str
    tasks: list[Task]
    humans: PlannedHumans
    judge: ChosenJudge | None
    rendering: RenderSettings | None

    @property
    def agent(self) -> AskedModel | None:
        """The agent's model; None for rules."""
        config = self.config
        if not has_model(config.agent):
            return None
        return AskedModel("agent", config.agent, config.agent_url, tools=self.kind.offers_tools)

    @property
    def models(self) -> list[AskedModel]:
        """The models that are asked for text."""
        agent = [] if self.agent is None else [self.agent]
        return [*agent, *self.humans.models(self.kind, self.config.sim_url), *(self.judge.asked if self.judge else [])]

    @property
    def inputs(self) -> list[Artifact]:
        """The artifacts that are read."""
        return [] if self.judge is None or self.judge.critic is None else [self.judge.critic]

    @cached_property
    def tasks_digest(self) -> str:
        return digest_of([task.model_dump(mode="json") for task in self.tasks])

    @property
    def own_prompt(self) -> str | None:
        """The agent's system prompt, with its placeholder; None for the packaged one."""
        text = self.kind.agent_system()
        return None if text == task_kind(self.kind.name).agent_system() else text

    @property
    def scorer(self) -> CreditScorer:
        """Knows what the tasks say of replies."""
        return CreditScorer(self.kind, self.config.max_turns)

    def frame(
        self,
        stage: str,
        run: Run,
        config: PlannedConfig,
        reporter: Reporter,
        inputs: Sequence[Artifact] = (),
        computed: int = 0,
    ) -> Frame:
        """Return the frame of a stage that plays the dialogues.

        Args:
            inputs, computed: of the frame, besides those of the judge.

        Raises:
            UsageError: the tasks have pages, and the model of the human would see none.
        """
        frame = Frame(
            stage,
            run,
            config,
            reporter,
            inputs=[*self.inputs, *inputs],
            models=self.models,
            computed=computed + (0 if self.judge is None else self.judge.computed),
            environment={"tasks_digest": self.tasks_digest},
        )
        check_vision(self.kind, self.config, frame.serving)
        return frame

    def rules(self) -> Rules:
        """Return the rules of the dialogues."""
        config = self.config
        return Rules(
            config.max_turns,
            config.temperature,
            config.top_p,
            config.max_tokens,
            config.protocol,
            config.token_limit,
            config.best_of or 1,
            logprobs=self.judge is not None and self.judge.critic is not None,
            max_thought_tokens=config.max_thought_tokens,
            effort=config.effort,
            thoughts=config.thoughts,
        )

    async def open_agent(self, opens: Opens, reporter: Reporter, stack: AsyncExitStack) -> ChatClient:
        """Open the agent: its model or rules. Warn if its model does not learn how much to think."""
        config, kind = self.config, self.kind
        if config.agent == SCRIPTED and kind.scripted_agent is not None:
            return ScriptedClient(kind.scripted_agent)
        client = await stack.enter_async_context(opens(AskedModel("agent", config.agent, config.agent_url)))
        warn_of_effort(client, config.effort, reporter.warn)
        if kind.offers_tools:
            check_tools(client)
        openings = (opening(kind, task, config.max_turns) for task in self.tasks)
        prompts = ("".join(message.content for message in messages) for messages in openings)
        check_context(client, "agent", prompts, config.max_tokens + (config.max_thought_tokens or 0))
        return client

    async def open_simulated_humans(
        self, opens: Opens, stack: AsyncExitStack, folder: Path, renderer: Renderer | None = None
    ) -> dict[str | None, Human]:
        """Open the simulated humans, by the names that dialogues have for them. A model that plays several is opened
        once.

        Args:
            folder: the run, or another folder, for screenshots.
            renderer: of the pages that they see; None opens browsers.
        """
        config, humans = self.config, self.humans
        models = humans.models(self.kind, config.sim_url)
        if len(models) > 1 and config.sim_url:
            names = [model.name for model in models]
            served = await servers_of_models(names, config.sim_url, "sim", **settings_of(config))
            models = [replace(model, urls=served[model.name]) for model in models]
        clients = {model.name: await stack.enter_async_context(opens(model)) for model in models}
        for client in clients.values():
            requests, most = (task.problem_description for task in self.tasks), config.sim_max_tokens
            check_context(client, "sim", requests, most or HUMAN_SAMPLING.max_tokens)
        opening = open_humans(
            self.kind,
            [(clients.get(human.sim), human.persona) for human in humans.humans],
            folder / SCREENSHOTS,
            config.protocol,
            self.rendering,
            config.human_tries,
            renderer,
            config.sim_max_tokens,
        )
        return humans.by_name(await stack.enter_async_context(opening))

    def meta(self, agent: str) -> RolloutsMeta:
        """Return the `meta` of the rollouts.

        Args:
            agent: as it was named, by its id where it is an actor of the run.
        """
        config, judge = self.config, self.judge
        prompts: dict[str, Any] = {}
        if config.prompts is not None:
            prompts = given_prompts(self.kind, config.prompts, config.max_turns)
        meta = RolloutsMeta(
            **self.humans.meta(),
            task=config.task,
            tasks=self.source,
            split=config.split,
            holdout=config.holdout,
            holdout_validation=config.holdout_validation,
            tasks_digest=self.tasks_digest,
            agent=agent,
            sim=self.humans.title,
            human=config.human,
            samples=config.samples,
            max_turns=config.max_turns,
            protocol=config.protocol,
            window=None if self.rendering is None else window_name(self.rendering),
            pictures=None if self.rendering is None else self.rendering.pictures,
            agent_system=prompts.get("agent_system"),
            prompts_digest=prompts.get("prompts_digest"),
            best_of=None if judge is None else config.best_of,
            effort=config.effort,
            max_thought_tokens=config.max_thought_tokens,
            thoughts=config.thoughts,
        )
        return meta.model_copy(update=NO_JUDGE if judge is None else judge.meta())


def prepare_dialogues(run: Run | None, config: RolloutConfig, reporter: Reporter) -> Dialogues:
    """Read the tasks, and check that both sides and the judge can play them.

    Args:
        run: None where there is none yet.

    Raises:
        UsageError: the options do not go together, or do not suit the tasks.
        InputError: a row of the file is not a task, or a task cannot be scored.
    """
    dialogues = load_dialogues(run, config, reporter)
    config, kind, tasks = dialogues.config, dialogues.kind, dialogues.tasks
    check_agent(kind, config)
    check_human(kind, tasks, config)
    check_choosing(kind, tasks, config)
    check_harness(kind, tasks, config)
    if config.ray is not None and not (config.best_of and config.chooser in CRITIC_JUDGES):
        raise UsageError("No critic judges these dialogues.", where="--ray", fix="leave it out")
    if kind.visual:
        check_rendering((task.ground_truth for task in tasks), any_page=config.agent != SCRIPTED)
    return dialogues


def load_dialogues(run: Run | None, config: RolloutConfig, reporter: Reporter) -> Dialogues:
    """Read the tasks, and choose the humans and the judge, without the checks of `prepare_dialogues`."""
    if run is not None:  # what is recorded is the id of an agent, not its path
        config = config.model_copy(update={"agent": given_model(run, config.agent)})
    config = config.model_copy(update={"prompts": _prompts(config, reporter)})
    kind, source, tasks, note = load_tasks(run, config, reporter)
    if note is not None:
        reporter.say(note)
    humans, rendering = plan_humans(kind, config), rendering_of(kind, config, reporter)
    return Dialogues(config, kind, source, tasks, humans, choose_judge(run, config), rendering)


def own_prompts(kind: TaskKind, model: str) -> Path | None:
    """Return the folder of prompts in that of an actor, under which it learned tasks of this kind; None where it has
    none, or that is the packaged prompt."""
    folder = model_folder(model)
    prompts = None if folder is None else folder / prompts_of(kind)
    same = prompts is None or not prompts.is_dir() or read_prompt(prompts / AGENT_TEXT) == kind.agent_system()
    return None if same else prompts


def _prompts(config: RolloutConfig, reporter: Reporter) -> Path | None:
    """Return the folder of the prompts that are used: that which is named, else that of the actor that plays; None for
    the packaged ones. Warn where an actor is to play under another system prompt than it learned."""
    kind, chosen = task_kind(config.task), config.prompts
    learned = own_prompts(kind, config.agent) if has_model(config.agent) else None
    if chosen is None:
        return learned
    chosen = None if str(chosen) == "packaged" else chosen
    if learned is not None:
        turns = config.max_turns
        texts = [system_prompt(kind if path is None else kind.with_prompts(path), turns) for path in (learned, chosen)]
        if texts[0] != texts[1]:
            reporter.warn(f"{config.agent} learned under another system prompt ({learned}) than --prompts gives.")
    return chosen


# Best of N within a dialogue (the paper's figure 3a): N replies are sampled at each turn of the agent, a judge scores
# them, and the dialogue goes on with the best. The other candidates are not written: the turn records the advantages of
# all (`sweet.tasks.trajectory.Choice`), and the sampling seed gives the same candidates again.


def check_choosing(kind: TaskKind, tasks: Sequence[Task], config: RolloutConfig) -> None:
    """Check the options of the choice among candidates.

    Raises:
        UsageError: they do not go together, or the judge cannot judge these tasks.
    """
    options = {name: getattr(config, name) for name in ("judge", *CHOOSERS_OF_OPTION)}
    if (config.best_of or 1) == 1:
        name = next((name for name, value in options.items() if value not in (None, [])), None)
        if name is not None:
            what = f"{option(name)} chooses among several replies, and one is sampled at each turn."
            raise UsageError(what, where=option(name), fix=f"--best-of 8, or omit {option(name)}")
        return
    judge = config.chooser
    if judge == LOOKAHEAD:
        raise UsageError(
            "What comes next is not known while a dialogue is played.",
            where=option("judge", judge),
            fix="--judge critic, or a ranking",
        )
    check_judge_options(judge, options, CHOOSERS_OF_OPTION)
    if config.temperature == 0:
        raise UsageError(
            "At temperature 0 all candidates are the same reply.",
            where="--temperature 0",
            fix="a higher temperature, or omit --best-of",
        )
    if judge == "oracle":
        scorer = CreditScorer(kind, config.max_turns)
        check_credit_known(scorer, ((task, opening(kind, task, config.max_turns), Reply("")) for task in tasks))


def choose_judge(run: Run | None, config: RolloutConfig) -> ChosenJudge | None:
    """Return the judge that the options name; None if one reply is sampled at each turn.

    Raises:
        UsageError: the run, or None in place of it, has no such critic; or the model that judges `untrained` is not
            known.
    """
    if (config.best_of or 1) == 1:
        return None
    judge = config.chooser
    critic = start = None
    if judge in RUN_CRITICS:
        if run is None:
            raise UsageError(
                "A critic of the run chooses, and there is no run yet.",
                where=option("judge", judge),
                fix="name a run that has a critic, or another judge: --judge untrained",
            )
        critic = find_critic(run, judge, config.critic, needed_by="rollout --best-of")
    if judge == "untrained":
        start = config.reference or config.agent
        if not has_model(start):
            raise UsageError(
                "The judge untrained is the agent's model, and the agent is scripted.",
                where=option("agent", start),
                fix="--reference MODEL",
            )
    return ChosenJudge(judge, config, critic_settings(config), critic=critic, start=start)
