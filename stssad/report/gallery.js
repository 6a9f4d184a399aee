// The pool's images, ranked, with a threshold that moves. Used by the report, which holds its data,
// and by the studio, which fetches it. Names are set as text, never as markup.
"use strict"
const Gallery = (() => {
  const COLOURS = [[20, 11, 53], [101, 21, 110], [187, 55, 84], [249, 142, 9], [252, 255, 164]]
  const GROUPS = { flagged: "Flagged", borderline: "Borderline: worth a look", fine: "Fine" }
  const el = (tag, given = {}, ...children) => {
    const made = document.createElement(tag)
    for (const [name, value] of Object.entries(given)) {
      if (name === "class") made.className = value
      else if (name.startsWith("on")) made[name] = value
      else if (name in made && name !== "list") made[name] = value
      else made.setAttribute(name, value)
    }
    made.append(...children)
    return made
  }

  // A map, a byte for each place, over its image: transparent where nothing is anomalous.
  const drawMap = (canvas, text, side) => {
    const bytes = Uint8Array.from(atob(text), c => c.charCodeAt(0))
    const small = document.createElement("canvas")
    small.width = small.height = side
    const context = small.getContext("2d"), pixels = context.createImageData(side, side)
    bytes.forEach((value, i) => {
      const place = value / 255 * (COLOURS.length - 1), below = Math.min(Math.floor(place), COLOURS.length - 2)
      for (let c = 0; c < 3; c++)
        pixels.data[4 * i + c] = COLOURS[below][c] + (place - below) * (COLOURS[below + 1][c] - COLOURS[below][c])
      pixels.data[4 * i + 3] = 215 * Math.sqrt(value / 255)
    })
    context.putImageData(pixels, 0, 0)
    canvas.width = canvas.height = 256
    const large = canvas.getContext("2d")
    large.imageSmoothingQuality = "high"
    large.drawImage(small, 0, 0, 256, 256)
  }

  const short = x => Math.abs(x) >= 1000 ? Math.round(x).toLocaleString("en") : Number(x.toPrecision(4)).toString()

  function build(root, data, hooks = {}) {
    const items = [...data.items].sort((a, b) => b.score - a.score)
    items.forEach((item, k) => { item.rank = k + 1 })
    const shown = score => data.floor === null ? score : Math.log10(Math.max(score - data.floor, 1e-9))
    const back = x => data.floor === null ? x : data.floor + 10 ** x
    const all = [...items.map(i => i.score), ...data.normal].map(shown)
    const low = Math.min(...all), high = Math.max(...all), room = (high - low) * .03 || 1
    const state = { threshold: data.threshold, filter: "all", kind: null }
    const group = item => item.score > state.threshold ? "flagged"
      : item.score >= Math.min(data.border, state.threshold) ? "borderline" : "fine"

    // Histogram and slider.
    const N = 40, from = low - room, to = high + room
    const bars = values => {
      const counts = new Array(N).fill(0)
      values.forEach(v => { counts[Math.min(N - 1, Math.floor((shown(v) - from) / (to - from) * N))]++ })
      return counts.map(c => c / Math.max(1, values.length))
    }
    const heights = [bars(data.normal), bars(items.map(i => i.score))], top = Math.max(...heights.flat())
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg")
    svg.setAttribute("viewBox", "0 0 400 120")
    svg.setAttribute("preserveAspectRatio", "none")
    svg.setAttribute("role", "img")
    svg.setAttribute("aria-label", "Histogram of the scores of unseen normal images and of the pool")
    const shape = (tag, given) => {
      const made = document.createElementNS("http://www.w3.org/2000/svg", tag)
      for (const [name, value] of Object.entries(given)) made.setAttribute(name, value)
      svg.append(made)
      return made
    }
    heights.forEach((row, k) => row.forEach((share, i) => share && shape("rect", {
      class: `bar b${k}`, x: 400 * i / N, width: 400 / N - .6, y: 118 - 112 * share / top, height: 112 * share / top,
    })))
    const line = shape("line", { class: "threshold", y1: 0, y2: 120 })
    const slider = el("input", { type: "range", id: "threshold", min: "0", max: "2000", step: "1" })
    slider.setAttribute("aria-label", "Threshold")
    const said = el("p", { id: "said", role: "status" })
    const toSlider = t => Math.round(2000 * (shown(t) - from) / (to - from))

    const csv = () => {
      const quoted = text => '"' + text.replaceAll('"', '""') + '"'
      const rows = items.map(i => [quoted(i.name), i.score, i.score > state.threshold ? 1 : 0, i.p,
        i.kind < 0 ? "" : quoted(kindName(i.kind))].join(","))
      return "image_path,pred_score,pred_label,p_value,kind\n" + rows.join("\n") + "\n"
    }
    const download = el("a", { class: "button", href: "#", id: "download", download: "scores.csv" }, "Download CSV at this threshold")
    download.onclick = () => { download.href = URL.createObjectURL(new Blob([csv()], { type: "text/csv" })) }
    const reset = el("button", { type: "button", id: "reset" }, "Back to the fit's")
    const control = el("div", { class: "control" },
      el("figure", {}, svg, slider, el("figcaption", {}, el("span", { class: "key n" }), "unseen normal images ",
        el("span", { class: "key p" }), "the pool; the line is the threshold, above which images are flagged")),
      said, el("p", { class: "buttons" }, download, reset))

    // Kinds.
    const names = { ...(data.kindNames || {}) }
    const kindName = k => names[k] || `kind ${k + 1}`
    const kinds = el("div", { class: "kinds" })

    // Filters and cards.
    const filters = el("div", { class: "filters", role: "group" })
    filters.setAttribute("aria-label", "Show")
    const buttons = {}
    for (const name of ["all", ...Object.keys(GROUPS)]) {
      buttons[name] = el("button", { type: "button", onclick: () => { state.filter = name; state.kind = null; update() } })
      buttons[name].dataset.filter = name
      filters.append(buttons[name])
    }
    const maps = el("input", { type: "checkbox", id: "maps" })
    if (data.mapSide) filters.append(el("label", { class: "toggle" }, maps, " anomaly maps"))
    const grid = el("div", { class: "gallery", id: "gallery" })
    const dividers = Object.fromEntries(Object.entries(GROUPS).map(([name, words]) =>
      [name, el("h3", { class: "divider" }, words)]))
    const withMap = item => {
      if (!item.map || item.canvas) return
      item.canvas = el("canvas", { class: "map" })
      drawMap(item.canvas, item.map, data.mapSide)
      item.card.querySelector(".picture").append(item.canvas)
    }
    const drawn = items.filter(item => item.image)  // of very many, the least anomalous are only counted
    for (const item of drawn) {
      const image = el("img", { loading: "lazy", alt: item.name, src: item.image, width: 128, height: 128 })
      const tag = el("span", { class: "tag" })
      item.card = el("button", { type: "button", class: "card", onclick: () => open(item) },
        el("span", { class: "picture" }, image),
        el("span", { class: "caption" }, el("strong", {}, `${item.rank}. ${item.name}`), tag))
      item.card.title = `score ${short(item.score)}; ${(100 * item.p).toPrecision(2)} % of normal images score as high`
      item.tag = tag
      item.card.onmouseenter = item.card.onfocus = () => withMap(item)
    }
    maps.onchange = () => {
      grid.classList.toggle("maps", maps.checked)
      if (maps.checked) drawn.forEach(withMap)
    }

    // One image, large.
    const dialog = el("dialog", { class: "large" })
    dialog.setAttribute("aria-label", "Image")
    let current = null
    const visible = () => drawn.filter(i => !i.card.hidden)
    const step = by => {
      const list = visible(), at = list.indexOf(current)
      if (list[at + by]) open(list[at + by])
    }
    function open(item) {
      current = item
      const image = el("img", { alt: item.name, src: item.full || item.image })
      image.onerror = () => { image.onerror = null; image.src = item.image }
      const picture = el("div", { class: "picture" }, image)
      const canvas = item.map ? el("canvas", { class: "map" }) : null
      if (canvas) { drawMap(canvas, item.map, data.mapSide); picture.append(canvas) }
      const toggle = el("button", { type: "button", onclick: () => picture.classList.toggle("plain") }, "map on / off")
      const close = el("button", { type: "button", onclick: () => dialog.close() }, "close")
      dialog.replaceChildren(picture, el("div", { class: "facts" },
        el("h3", {}, `${item.rank}. ${item.name}`),
        el("p", {}, `Score ${short(item.score)} (threshold ${short(state.threshold)}). ` +
          `${(100 * item.p).toPrecision(2)} % of normal images score as high or higher.` +
          (item.kind >= 0 ? ` Group: ${kindName(item.kind)}.` : "")),
        el("p", { class: "buttons" }, ...(canvas ? [toggle] : []),
          el("button", { type: "button", onclick: () => step(-1) }, "‹ previous"),
          el("button", { type: "button", onclick: () => step(1) }, "next ›"), close),
        ...(hooks.facts ? [hooks.facts(item)] : [])))
      if (!dialog.open) dialog.showModal()
    }
    dialog.onkeydown = event => {
      if (event.key === "ArrowLeft") step(-1)
      if (event.key === "ArrowRight") step(1)
      if (hooks.key) hooks.key(event, current)
    }
    dialog.onclick = event => { if (event.target === dialog) dialog.close() }

    function showKinds() {
      const flagged = items.filter(i => i.kind >= 0 && group(i) !== "fine")
      const found = [...new Set(flagged.map(i => i.kind))].sort((a, b) => a - b)
      kinds.replaceChildren()
      if (!flagged.length) { kinds.append(el("p", { class: "note" }, "Nothing is flagged.")); return }
      if (found.length === 1) kinds.append(el("p", { class: "note" }, "They look like one kind."))
      for (const k of found) {
        const members = flagged.filter(i => i.kind === k)
        const name = el("input", { value: kindName(k), maxLength: 60 })
        name.setAttribute("aria-label", `Name of kind ${k + 1}`)
        name.onchange = () => { names[k] = name.value.trim(); if (hooks.renamed) hooks.renamed(k, names[k]); update() }
        const only = el("button", { type: "button", onclick: () => { state.kind = k; state.filter = "all"; update(); grid.scrollIntoView() } },
          `show ${members.length}`)
        kinds.append(el("div", { class: "kind" }, el("div", { class: "head" }, name, only),
          el("div", { class: "examples" }, ...members.slice(0, 6).map(i =>
            el("img", { src: i.image, alt: i.name, loading: "lazy", width: 72, height: 72 })))))
      }
    }

    let last = ""
    function update() {
      const counts = { flagged: 0, borderline: 0, fine: 0 }
      let fits = null
      for (const item of items) {
        const now = group(item)
        counts[now]++
        if (!item.card) continue
        if (item.card.dataset.group !== now) {
          item.card.dataset.group = now
          item.tag.textContent = now === "fine" ? "" : now
        }
        fits = (state.filter === "all" || state.filter === now) && (state.kind === null || item.kind === state.kind)
        if (item.card.hidden === fits) item.card.hidden = !fits
      }
      const marks = `${counts.flagged} ${counts.borderline}`
      if (marks !== last) {  // the groups are runs of the ranking: only their dividers move
        last = marks
        let at = 0
        const order = []
        for (const name of Object.keys(GROUPS)) {
          dividers[name].textContent = `${GROUPS[name]} (${counts[name]})`
          if (counts[name]) order.push([at, dividers[name]])
          else dividers[name].remove()
          at += counts[name]
        }
        if (!grid.childElementCount) grid.append(...drawn.map(i => i.card))
        for (const [k, divider] of order) if (items[k].card) items[k].card.before(divider)
      }
      for (const [name, divider] of Object.entries(dividers))
        divider.hidden = state.filter !== "all" && state.filter !== name
      for (const [name, button] of Object.entries(buttons)) {
        const n = name === "all" ? items.length : counts[name]
        button.textContent = `${name === "all" ? "All" : name[0].toUpperCase() + name.slice(1)} ${n}`
        button.setAttribute("aria-pressed", String(state.filter === name && state.kind === null))
      }
      const rate = data.normal.filter(v => v > state.threshold).length / Math.max(1, data.normal.length)
      said.textContent = `Threshold ${short(state.threshold)}: ${counts.flagged} of ${items.length} flagged, ` +
        `${counts.borderline} borderline; ${(100 * rate).toFixed(1)} % of unseen normal images lie above it.`
      const x = 400 * (shown(state.threshold) - from) / (to - from)
      line.setAttribute("x1", x); line.setAttribute("x2", x)
      showKinds()
      if (hooks.moved) hooks.moved(state.threshold, counts)
    }
    const move = t => { state.threshold = t; slider.value = toSlider(t); update() }
    slider.oninput = () => { state.threshold = back(from + (to - from) * slider.value / 2000); update() }
    reset.onclick = () => move(data.threshold)
    root.replaceChildren(control, el("h2", {}, "Kinds"), kinds, el("h2", {}, "All images, ranked"),
      el("p", { class: "note" }, "The most anomalous first. Under each image its rank and name; the score and the share of " +
        "normal images that score as high are shown when it is opened. Hover to see where it is anomalous." +
        (drawn.length < items.length ? ` The ${items.length - drawn.length} least anomalous are in scores.csv alone.` : "")), filters, grid, dialog)
    move(data.threshold)
    return { items, state, move, update, open, group, dialog, csv }
  }
  return { build, el, drawMap, short }
})()
