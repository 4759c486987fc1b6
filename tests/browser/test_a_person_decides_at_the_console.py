"""What a person does at the console: look, approve, reject, by mouse and by keyboard, on a phone, with text that wants to be more."""

from playwright.async_api import Page, expect

from tests.postgres.api.gateway import PROPOSAL, Gateway, is_problem, post, triggered


async def test_approving_by_a_click_lets_the_task_go_on(page: Page, gateway: Gateway) -> None:
    task = await gateway.asking()

    await page.goto("/console")
    await page.get_by_role("link", name=PROPOSAL.title).click()
    await expect(page.get_by_text(PROPOSAL.cause.sentence)).to_be_visible()
    await expect(page.locator(".diff .removed")).to_have_text("-image: web:1.2.4")
    await expect(page.locator(".diff .added")).to_have_text("+image: web:1.2.3")
    await page.get_by_role("button", name="Approve").click()

    await expect(page.locator(".verdict")).to_contain_text("approved by anna")
    async with gateway.worker():
        assert (await gateway.until(task.id, "completed")).output["state"] == "approved"


async def test_rejecting_asks_for_the_reason_before_anything_is_sent(page: Page, gateway: Gateway) -> None:
    task = await gateway.asking()
    await page.goto(f"/console/tasks/{task.id}")

    await page.get_by_role("button", name="Reject").click()
    await expect(page.get_by_label("Reason")).to_be_focused()
    assert (await gateway.records.approval(task.id)).state == "pending"
    await page.get_by_label("Reason").fill("1.2.5 is on its way")
    await page.get_by_role("button", name="Reject").click()

    await expect(page.locator(".verdict")).to_contain_text("rejected by anna")
    assert (await gateway.records.approval(task.id)).decision.reason == "1.2.5 is on its way"


async def test_the_keyboard_is_enough(page: Page, gateway: Gateway) -> None:
    task = await gateway.asking()
    await page.goto(f"/console/tasks/{task.id}")

    for _ in range(40):
        await page.keyboard.press("Tab")
        if await page.evaluate("document.activeElement.textContent") == "Approve":
            break
    assert await page.evaluate("document.activeElement.matches(':focus-visible')")
    await page.keyboard.press("Enter")

    await expect(page.locator(".verdict")).to_contain_text("approved by anna")


async def test_the_answer_of_another_person_appears_and_a_later_click_is_told_so(page: Page, gateway: Gateway) -> None:
    task = await gateway.asking()
    await page.goto(f"/console/tasks/{task.id}")
    stale = await page.context.new_page()
    await stale.goto(f"/console/tasks/{task.id}")
    await stale.get_by_label("Reason").fill("let me think")  # what is being typed is not taken away

    await gateway.by("abel").post(f"/tasks/{task.id}/approve", json={"digest": PROPOSAL.digest})

    await expect(page.locator(".verdict")).to_contain_text("approved by abel")  # without a reload
    await expect(stale.get_by_label("Reason")).to_have_value("let me think")
    await stale.get_by_role("button", name="Reject").click()
    await expect(stale.get_by_role("alert")).to_contain_text("was approved by abel")
    await stale.close()


async def test_hostile_text_is_text(page: Page, gateway: Gateway) -> None:
    await post(gateway.by(None), triggered("Deployment/shop/web <img src=x onerror=alert(1)><script>alert(1)</script>"))
    task = await gateway.asking()
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: dialogs.append(dialog.message))

    await page.goto(f"/console/tasks/{task.id}")
    await expect(page.locator(".quote")).to_have_text("fatal <script>alert(1)</script>")
    await page.goto("/console")
    await page.get_by_role("link", name="Deployment/shop/web", exact=True).click()
    await expect(page.get_by_text("<script>alert(1)</script>").first).to_be_visible()

    assert dialogs == []
    assert await page.locator("img").count() == 0


async def test_pages_fit_a_phone_in_light_and_dark(page: Page, gateway: Gateway) -> None:
    task = await gateway.asking()
    await page.set_viewport_size({"width": 360, "height": 740})
    for scheme, paper in (("light", "rgb(251, 251, 249)"), ("dark", "rgb(20, 24, 23)")):
        await page.emulate_media(color_scheme=scheme)
        for path in ("", f"/tasks/{task.id}", "/dead-letters", "/deliveries", "/health"):
            await page.goto(f"/console{path}")
            assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
            assert await page.evaluate("getComputedStyle(document.body).backgroundColor") == paper


async def test_text_can_be_read_on_its_ground(page: Page, gateway: Gateway) -> None:
    """WCAG AA: a contrast of 4.5 for each word on the busiest pages, in both schemes."""
    task = await gateway.asking()
    for scheme in ("light", "dark"):
        await page.emulate_media(color_scheme=scheme)
        for path in ("", f"/tasks/{task.id}", "/health"):
            await page.goto(f"/console{path}")
            assert await page.evaluate(FAINT) == [], (scheme, path)


async def test_a_session_that_is_over_leads_to_the_door(page: Page, gateway: Gateway) -> None:
    await page.get_by_role("button", name="Sign out").click()
    await page.wait_for_url("**/console/login")

    await page.goto("/console/health")

    await expect(page).to_have_url(f"{gateway.url}/console/login")
    is_problem(await gateway.by(None).get("/tasks"), 401, "Unauthenticated")


FAINT = """() => {
  const light = (css) => {
    const linear = (c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    const [r, g, b] = css.match(/[\\d.]+/g).slice(0, 3).map((c) => linear(c / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const css = getComputedStyle(at).backgroundColor;
      if (!css.endsWith(", 0)") && css !== "transparent") return css;
    }
    return "rgb(255, 255, 255)";
  };
  return [...document.querySelectorAll("body *")]
    .filter((node) => [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim()) && node.offsetParent)
    .map((node) => [light(getComputedStyle(node).color), light(ground(node)), node.outerHTML.slice(0, 80)])
    .filter(([ink, paper]) => (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05) < 4.5)
    .map(([, , text]) => text);
}"""
