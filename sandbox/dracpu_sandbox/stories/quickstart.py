"""Pods with a claim get exclusive CPUs; all other pods run on the remaining CPUs."""

from dracpu_sandbox.stories.story import Story

MACHINES = ("xeon",)


async def play(story: Story) -> None:
    await story.pod("web", cpus=4)
    await story.pod("db", cpus=2)
    await story.pod("other")
    await story.until_running("web", "db", "other")

    story.expects("web has 4 CPUs", len(story.cpus("web")) == 4, story.cpus("web"))
    story.expects("db has 2 CPUs", len(story.cpus("db")) == 2, story.cpus("db"))
    await story.until_exclusive()

    freed = story.cpus("web")
    await story.delete("web")
    await story.until("other may run on the former CPUs of web", lambda: freed <= story.cpus("other"))
