"use strict"
{
  const { el, drawMap, largeImage, short } = Gallery
  const $ = id => document.getElementById(id)
  const run = document.body.dataset.run
  const base = run ? `/run/${encodeURIComponent(run)}` : ""
  const showMessage = text => { $("message").textContent = text || "" }

  // Every request carries our header; an error is shown as the studio words it.
  async function request(path, body, raw) {
    const options = { headers: { "x-stssad": "1" } }
    if (body !== undefined) {
      options.method = "POST"
      options.body = raw ? body : JSON.stringify(body)
      if (!raw) options.headers["content-type"] = "application/json"
    }
    let response
    try { response = await fetch(path, options) }
    catch { throw new Error("The studio does not respond; is it still running?") }
    if (!response.ok) {
      const text = await response.text()
      let reason = text
      try { reason = JSON.parse(text).error || "The request failed." } catch { /* plain text */ }
      throw new Error(reason)
    }
    return response.json()
  }
  const guarded = action => async (...inputs) => {
    try { showMessage(""); return await action(...inputs) } catch (error) { showMessage(error.message) }
  }
  const percent = ([share, low, high]) => share === null ? "unknown"
    : `${(100 * share).toFixed(0)} % (${(100 * low).toFixed(0)} to ${(100 * high).toFixed(0)})`

  const pages = {
    index() {
      $("fit").onsubmit = event => {
        event.preventDefault()
        const inputs = Object.fromEntries(new FormData($("fit")))
        guarded(async () => {
          await request("/fit", inputs)
          location.href = `/run/${encodeURIComponent(inputs.name)}`
        })()
      }
      for (const button of document.querySelectorAll("[data-browse]")) button.onclick = () =>
        browse($("fit").elements[button.dataset.browse])
    },

    fit() {
      const poll = async () => {
        const mine = (await request("/runs")).find(each => each.name === run)
        if (!mine) { $("state").textContent = "There is no such run."; return }
        if (mine.state === "finished") { location.reload(); return }
        const { bars, share, left, error } = mine.progress
        const running = mine.state === "running"
        $("state").textContent = error ? `The fit failed: ${error}` : running
          ? `Fitting: ${(100 * share).toFixed(0)} %` + (left === null ? "" : `, about ${left < 90 ? `${left} s` : `${Math.round(left / 60)} min`} left`)
          : "The fit was stopped. Resume it to continue."
        $("bar").value = share
        $("bars").replaceChildren(...Object.entries(bars).map(([name, [done, most]]) => el("li", {}, `${name}: ${done} of ${most}`)))
        $("stop").hidden = !running
        $("resume").hidden = running || Boolean(error)
        setTimeout(guarded(poll), 1000)
      }
      $("stop").onclick = guarded(() => request(`${base}/stop`, {}))
      $("resume").onclick = guarded(() => request(`${base}/resume`, {}))
      guarded(poll)()
    },

    async run() {
      const data = await request(`${base}/data`)
      $("finding").textContent = data.headline
      if (data.warnings.length) $("warnings").replaceChildren(el("div", { class: "warnings" }, el("b", {}, "Warnings"),
        el("ul", {}, ...data.warnings.map(warning => el("li", {}, warning)))))
      const save = el("button", { type: "button", id: "save", class: "main" }, "Save this threshold")
      const gallery = Gallery.build($("pool"), data, {
        moved: (t, counts, headline) => { save.disabled = t === data.threshold; $("finding").textContent = headline },
        renamed: guarded((group, name) => request(`${base}/groups`, { group, name })),
      })
      document.querySelector(".control .buttons").prepend(save)
      save.onclick = guarded(async () => {
        await request(`${base}/threshold`, { score: gallery.state.threshold })
        data.threshold = gallery.state.threshold
        save.disabled = true
      })
      window.gallery = gallery
      for (const tab of document.querySelectorAll("[role=tab]")) tab.onclick = () => {
        for (const other of document.querySelectorAll("[role=tab]")) {
          other.setAttribute("aria-selected", String(other === tab))
          $(other.dataset.tab).hidden = other !== tab
        }
        if (tab.dataset.tab === "results") gallery.update()
        if (tab.dataset.tab === "review") review.start()
      }
      const review = setUpReview(data)
      setUpUploads()
    },
  }

  // The folders that the studio may read; the chosen one goes into the input.
  async function browse(input) {
    const dialog = $("browser")
    const list = guarded(async path => {
      const listing = await request(`/folders?path=${encodeURIComponent(path)}`)
      const row = each => el("li", {}, el("button", { type: "button", onclick: () => list(each.path) }, `${each.name} ›`))
      const n = listing.n_images, m = listing.folders.length
      $("browsed").textContent = listing.path || "Choose a folder"
      $("inside").textContent = listing.path ? `${n} image${n === 1 ? "" : "s"}, ${m} folder${m === 1 ? "" : "s"}` : ""
      $("folders").replaceChildren(...listing.folders.map(row))
      $("up").disabled = listing.parent === null
      $("up").onclick = () => list(listing.parent)
      $("use").disabled = !listing.path
      $("use").onclick = () => { input.value = listing.path; dialog.close(); input.focus() }
      if (!dialog.open) dialog.showModal()
    })
    $("leave").onclick = () => dialog.close()
    await list(input.value.trim())
    if (!dialog.open) await list("")  // what was typed is no folder: start at the top
  }

  function setUpReview(data) {
    const items = Object.fromEntries(data.items.map(item => [item.i, item]))
    let queue = [], current = null
    const who = () => $("who").value.trim()
    const state = { counts: null }
    const more = async () => {
      const proposal = await request(`${base}/next?who=${encodeURIComponent(who())}`)
      queue = proposal.next
      state.counts = proposal
      showCounts()
    }
    const showCounts = () => {
      const { good, defect, unsure, left } = state.counts
      $("reviewed").textContent = `${good} good, ${defect} defect, ${unsure} unsure; ${left} not labeled.`
    }
    const show = i => {
      current = i
      for (const button of document.querySelectorAll("#labels [data-label]")) button.disabled = i === null
      if (i === null) {
        $("shown").replaceChildren()
        $("shown-name").textContent = "All images are labeled."
        $("shown-facts").textContent = ""
        return
      }
      const item = items[i]
      $("shown").replaceChildren(...largeImage(item, data))
      $("shown-name").textContent = item.name
      $("shown-facts").textContent = `Score ${short(item.score)}, threshold ${short(data.threshold)}: ` +
        (item.score > data.threshold ? "flagged." : "not flagged.")
    }
    const next = async () => {
      if (!queue.length) await more()
      show(queue.length ? queue[0] : null)
    }
    const label = guarded(async word => {
      if (current === null) return
      await request(`${base}/labels`, { i: current, label: word, who: who() })
      items[current].label = word
      state.counts[word]++
      state.counts.left--
      showCounts()
      queue = queue.filter(i => i !== current)
      await next()
    })
    const undo = guarded(async () => {
      const { i } = await request(`${base}/undo`, { who: who() })
      if (i === null) { showMessage("There is nothing to undo."); return }
      delete items[i].label
      await more()
      queue = [i, ...queue.filter(other => other !== i)]
      show(i)
    })
    for (const button of document.querySelectorAll("#labels [data-label]")) button.onclick = () => label(button.dataset.label)
    $("undo").onclick = undo
    document.addEventListener("keydown", event => {
      if ($("review").hidden || event.target.tagName === "INPUT" || event.ctrlKey || event.metaKey || event.altKey) return
      const word = { g: "good", d: "defect", u: "unsure" }[event.key]
      if (word) label(word)
      if (event.key === "z") undo()
      if (event.key === "m") $("shown").classList.toggle("plain")
    })
    $("refit").onclick = guarded(async () => {
      $("refit").disabled = true
      $("refitted").replaceChildren(el("p", { role: "status" }, "Refitting …"))
      try {
        const result = await request(`${base}/refit`, {})
        const side = (title, x) => el("div", {}, el("h4", {}, title), el("p", {}, `${x.n_flagged} flagged`),
          el("p", {}, `Precision ${percent(x.precision)}`), el("p", {}, `Recall ${percent(x.recall)}`))
        const accept = el("button", { type: "button", class: "main", id: "accept" }, "Use the new model")
        accept.onclick = guarded(async () => {
          const { name } = await request(`${base}/accept`, {})
          location.href = `/run/${encodeURIComponent(name)}`
        })
        const names = list => list.slice(0, 8).map(i => items[i].name).join(", ") + (list.length > 8 ? " …" : "")
        $("refitted").replaceChildren(
          el("p", {}, result.summary),
          el("div", { class: "beside" }, side("Before", result.before), side("After", result.after)),
          el("p", {}, result.added.length ? `Newly flagged: ${names(result.added)}` : "No image is newly flagged."),
          el("p", {}, result.gone.length ? `No longer flagged: ${names(result.gone)}` : "No image lost its flag."), accept)
      } catch (error) {
        $("refitted").replaceChildren()
        throw error
      } finally { $("refit").disabled = false }
    })
    return { start: guarded(next) }
  }

  function setUpUploads() {
    const area = $("drop"), input = $("choose")
    const card = result => {
      if (result.error) return el("div", { class: "dropped-card" }, el("p", {}, result.error))
      const frame = el("div", { class: "image" }, el("img", { alt: result.name, src: result.image }))
      if (result.map) {
        const canvas = el("canvas", { class: "map" })
        drawMap(canvas, result.map, result.mapSide)
        frame.append(canvas)
      }
      return el("div", { class: `dropped-card${result.flagged ? " flagged" : ""}` }, frame,
        el("p", {}, el("strong", {}, result.name)),
        el("p", {}, `${result.flagged ? "Flagged" : "Not flagged"}, score ${short(result.score)}`))
    }
    const send = async files => {
      showMessage("")
      for (const file of files) {
        let results
        try { results = await request(`${base}/drop?file=${encodeURIComponent(file.name.slice(-300))}`, file, true) }
        catch (error) { results = [{ name: file.name, error: `${file.name}: ${error.message}` }] }
        $("dropped").prepend(...results.map(card))
      }
    }
    // All files in a folder: the browser walks through it.
    const listFiles = async entry => {
      if (entry.isFile) return [await new Promise((resolve, reject) => entry.file(resolve, reject))]
      const reader = entry.createReader(), files = []
      for (;;) {
        const batch = await new Promise((resolve, reject) => reader.readEntries(resolve, reject))
        if (!batch.length) return files
        for (const each of batch) files.push(...await listFiles(each))
      }
    }
    area.ondragover = event => { event.preventDefault(); area.classList.add("over") }
    area.ondragleave = () => area.classList.remove("over")
    area.ondrop = guarded(async event => {
      event.preventDefault()
      area.classList.remove("over")
      const entries = [...event.dataTransfer.items].map(item => item.webkitGetAsEntry()).filter(Boolean)
      const files = entries.length ? (await Promise.all(entries.map(listFiles))).flat() : [...event.dataTransfer.files]
      await send(files)
    })
    area.onclick = () => input.click()
    area.onkeydown = event => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); input.click() } }
    input.onchange = guarded(() => send([...input.files]))
  }

  guarded(async () => pages[document.body.dataset.page]())()
}
