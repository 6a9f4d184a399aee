"use strict"
{
  const { el, drawMap, short } = Gallery
  const $ = id => document.getElementById(id)
  const run = document.body.dataset.run
  const base = run ? `/run/${encodeURIComponent(run)}` : ""
  const say = words => { $("message").textContent = words || "" }

  // Every request carries our header; an answer that is no success is told as it is.
  async function ask(path, body, raw) {
    const given = { headers: { "x-stssad": "1" } }
    if (body !== undefined) {
      given.method = "POST"
      given.body = raw ? body : JSON.stringify(body)
      if (!raw) given.headers["content-type"] = "application/json"
    }
    let answer
    try { answer = await fetch(path, given) }
    catch { throw new Error("the studio doesn't answer; is it still running?") }
    if (!answer.ok) {
      const text = await answer.text()
      let words = text
      try { words = JSON.parse(text).error || "that isn't possible" } catch { /* plain words */ }
      throw new Error(words)
    }
    return answer.json()
  }
  const tried = work => async (...given) => {
    try { say(""); return await work(...given) } catch (error) { say(error.message) }
  }
  const percent = ([share, low, high]) => share === null ? "unknown"
    : `${(100 * share).toFixed(0)} % (${(100 * low).toFixed(0)} to ${(100 * high).toFixed(0)})`

  const pages = {
    index() {
      $("fit").onsubmit = event => {
        event.preventDefault()
        const given = Object.fromEntries(new FormData($("fit")))
        tried(async () => {
          await ask("/fit", given)
          location.href = `/run/${encodeURIComponent(given.name)}`
        })()
      }
      for (const button of document.querySelectorAll("[data-browse]")) button.onclick = () =>
        browse($("fit").elements[button.dataset.browse])
    },

    fit() {
      const look = async () => {
        const mine = (await ask("/runs")).find(each => each.name === run)
        if (!mine) { $("state").textContent = "There is no such run."; return }
        if (mine.state === "finished") { location.reload(); return }
        const { bars, share, left, error } = mine.progress
        const running = mine.state === "running"
        $("state").textContent = error ? `It could not be fitted: ${error}` : running
          ? `Fitting: ${(100 * share).toFixed(0)} %` + (left === null ? "" : `, about ${left < 90 ? `${left} s` : `${Math.round(left / 60)} min`} left`)
          : "It was stopped; resume it to go on."
        $("bar").value = share
        $("bars").replaceChildren(...Object.entries(bars).map(([name, [done, most]]) => el("li", {}, `${name}: ${done} of ${most}`)))
        $("stop").hidden = !running
        $("resume").hidden = running || Boolean(error)
        setTimeout(tried(look), 1000)
      }
      $("stop").onclick = tried(() => ask(`${base}/stop`, {}))
      $("resume").onclick = tried(() => ask(`${base}/resume`, {}))
      tried(look)()
    },

    async run() {
      const data = await ask(`${base}/data`)
      $("finding").textContent = data.headline
      if (data.warnings.length) $("warnings").replaceChildren(el("div", { class: "warnings" }, el("b", {}, "Before you trust it"),
        el("ul", {}, ...data.warnings.map(words => el("li", {}, words)))))
      const save = el("button", { type: "button", id: "save", class: "main" }, "Save this threshold")
      const gallery = Gallery.build($("pool"), data, {
        moved: t => { save.disabled = t === data.threshold },
        renamed: tried((kind, words) => ask(`${base}/kinds`, { kind, words })),
      })
      document.querySelector(".control .buttons").prepend(save)
      save.onclick = tried(async () => {
        await ask(`${base}/threshold`, { score: gallery.state.threshold })
        data.threshold = gallery.state.threshold
        save.disabled = true
        $("finding").textContent = (await ask(`${base}/data`)).headline
      })
      window.gallery = gallery
      for (const tab of document.querySelectorAll("[role=tab]")) tab.onclick = () => {
        for (const other of document.querySelectorAll("[role=tab]")) {
          other.setAttribute("aria-selected", String(other === tab))
          $(other.dataset.tab).hidden = other !== tab
        }
        if (tab.dataset.tab === "review") review.begin()
      }
      const review = reviewing(data)
      dropping()
    },
  }

  // Folders on the studio's machine, from where it may look at all; the chosen one goes into the input.
  async function browse(input) {
    const dialog = $("browser")
    const list = tried(async path => {
      const found = await ask(`/folders?path=${encodeURIComponent(path)}`)
      const row = each => el("li", {}, el("button", { type: "button", onclick: () => list(each.path) }, `${each.name} ›`))
      const n = found.n_images, m = found.folders.length
      $("browsed").textContent = found.path || "Where to look"
      $("inside").textContent = found.path ? `${n} image${n === 1 ? "" : "s"} and ${m} folder${m === 1 ? "" : "s"} in it` : ""
      $("folders").replaceChildren(...found.folders.map(row))
      $("up").disabled = found.parent === null
      $("up").onclick = () => list(found.parent)
      $("use").disabled = !found.path
      $("use").onclick = () => { input.value = found.path; dialog.close(); input.focus() }
      if (!dialog.open) dialog.showModal()
    })
    $("leave").onclick = () => dialog.close()
    await list(input.value.trim())
    if (!dialog.open) await list("")  // what was typed is no folder: from the beginning
  }

  function reviewing(data) {
    const items = Object.fromEntries(data.items.map(item => [item.i, item]))
    let queue = [], current = null
    const who = () => $("who").value.trim()
    const state = { counts: null }
    const more = async () => {
      const found = await ask(`${base}/next?who=${encodeURIComponent(who())}`)
      queue = found.next
      state.counts = found
      tell()
    }
    const tell = () => {
      const { good, defect, unsure, left } = state.counts
      $("reviewed").textContent = `${good} good, ${defect} defect, ${unsure} unsure; ${left} images are not marked.`
    }
    const show = i => {
      current = i
      for (const button of document.querySelectorAll("#judge [data-mark]")) button.disabled = i === null
      if (i === null) {
        $("shown").replaceChildren()
        $("shown-name").textContent = "All images are marked."
        $("shown-facts").textContent = ""
        return
      }
      const item = items[i], image = el("img", { alt: item.name, src: item.full })
      image.onerror = () => { image.onerror = null; image.src = item.image }
      $("shown").replaceChildren(image)
      if (item.map) {
        const canvas = el("canvas", { class: "map" })
        drawMap(canvas, item.map, data.mapSide)
        $("shown").append(canvas)
      }
      $("shown-name").textContent = item.name
      $("shown-facts").textContent = `Score ${short(item.score)}, threshold ${short(data.threshold)}: ` +
        (item.score > data.threshold ? "flagged." : "not flagged.")
    }
    const next = async () => {
      if (!queue.length) await more()
      show(queue.length ? queue[0] : null)
    }
    const mark = tried(async word => {
      if (current === null) return
      await ask(`${base}/marks`, { i: current, mark: word, who: who() })
      state.counts[word]++
      state.counts.left--
      tell()
      queue = queue.filter(i => i !== current)
      await next()
    })
    const undo = tried(async () => {
      const { i } = await ask(`${base}/undo`, { who: who() })
      if (i === null) { say("There is nothing to take back."); return }
      await more()
      queue = [i, ...queue.filter(other => other !== i)]
      show(i)
    })
    for (const button of document.querySelectorAll("#judge [data-mark]")) button.onclick = () => mark(button.dataset.mark)
    $("undo").onclick = undo
    document.addEventListener("keydown", event => {
      if ($("review").hidden || event.target.tagName === "INPUT" || event.ctrlKey || event.metaKey || event.altKey) return
      const word = { g: "good", d: "defect", u: "unsure" }[event.key]
      if (word) mark(word)
      if (event.key === "z") undo()
      if (event.key === "m") $("shown").classList.toggle("plain")
    })
    $("refit").onclick = tried(async () => {
      $("refit").disabled = true
      $("refitted").replaceChildren(el("p", { role: "status" }, "Refitting …"))
      try {
        const found = await ask(`${base}/refit`, {})
        const side = (title, x) => el("div", {}, el("h4", {}, title), el("p", {}, `${x.n_flagged} flagged`),
          el("p", {}, `Precision ${percent(x.precision)}`), el("p", {}, `Recall ${percent(x.recall)}`))
        const accept = el("button", { type: "button", class: "main", id: "accept" }, "Take the new run over")
        accept.onclick = tried(async () => {
          const { name } = await ask(`${base}/accept`, {})
          location.href = `/run/${encodeURIComponent(name)}`
        })
        const names = list => list.slice(0, 8).map(i => items[i].name).join(", ") + (list.length > 8 ? " …" : "")
        $("refitted").replaceChildren(
          el("p", {}, `Learned from ${found.n_good} good and ${found.n_defects} defective images. On what was reviewed:`),
          el("div", { class: "beside" }, side("Before", found.before), side("After", found.after)),
          el("p", {}, found.added.length ? `Newly flagged: ${names(found.added)}` : "Nothing is newly flagged."),
          el("p", {}, found.gone.length ? `No longer flagged: ${names(found.gone)}` : "Nothing is flagged no more."), accept)
      } catch (error) {
        $("refitted").replaceChildren()
        throw error
      } finally { $("refit").disabled = false }
    })
    return { begin: tried(next) }
  }

  function dropping() {
    const area = $("drop"), chosen = $("choose")
    const shown = result => {
      if (result.error) return el("div", { class: "dropped-card" }, el("p", {}, result.error))
      const picture = el("div", { class: "picture" }, el("img", { alt: result.name, src: result.image }))
      if (result.map) {
        const canvas = el("canvas", { class: "map" })
        drawMap(canvas, result.map, result.mapSide)
        picture.append(canvas)
      }
      return el("div", { class: `dropped-card${result.flagged ? " flagged" : ""}` }, picture,
        el("p", {}, el("strong", {}, result.name)),
        el("p", {}, `${result.flagged ? "flagged" : "fine"}, score ${short(result.score)}`))
    }
    const send = async files => {
      say("")
      for (const file of files) {
        let results
        try { results = await ask(`${base}/drop?file=${encodeURIComponent(file.name.slice(-300))}`, file, true) }
        catch (error) { results = [{ name: file.name, error: `${file.name}: ${error.message}` }] }
        $("dropped").prepend(...results.map(shown))
      }
    }
    // A folder is walked by the browser.
    const inside = async entry => {
      if (entry.isFile) return [await new Promise((good, bad) => entry.file(good, bad))]
      const reader = entry.createReader(), found = []
      for (;;) {
        const some = await new Promise((good, bad) => reader.readEntries(good, bad))
        if (!some.length) return found
        for (const each of some) found.push(...await inside(each))
      }
    }
    area.ondragover = event => { event.preventDefault(); area.classList.add("over") }
    area.ondragleave = () => area.classList.remove("over")
    area.ondrop = tried(async event => {
      event.preventDefault()
      area.classList.remove("over")
      const entries = [...event.dataTransfer.items].map(item => item.webkitGetAsEntry()).filter(Boolean)
      const files = entries.length ? (await Promise.all(entries.map(inside))).flat() : [...event.dataTransfer.files]
      await send(files)
    })
    area.onclick = () => chosen.click()
    area.onkeydown = event => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); chosen.click() } }
    chosen.onchange = tried(() => send([...chosen.files]))
  }

  tried(async () => pages[document.body.dataset.page]())()
}
