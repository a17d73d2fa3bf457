// The page: where we are (an address in the URL), the sentence pair above, the map beside, one station in the middle.

import { brief, digits, tiny } from './numbers.js';
import { openTrace } from './trace.js';
import { checkAll } from './check.js';
import { draw, formula, make, number, table } from './parts.js';
import { readPalette } from './matrix.js';
import { currentLanguage, say, setLanguage, STATIONS, textOf } from './words.js';
import { homeOf, label, matching, pathOf, renderStation, View } from './stations.js';
import { arithmetic } from './arithmetic.js';

const LIVE = document.documentElement.hasAttribute('data-live');
const $ = (id) => document.getElementById(id);
const first = (what) => document.querySelector(what);
const all = (what) => document.querySelectorAll(what);

const state = { station: 0, layer: 0, head: 0, t: 0, i: 0, depth: 1, pin: null, node: null, temperature: 1, topK: 0, trail: [], find: '' };
let trace = null;
let explained = { address: null, operands: [] }; // the number whose arithmetic stands on the page
let checks = { results: [], isDone: false };
let player = null;

const on = {
  choose: (address) => trace.parse(address) && go({ pin: address }, true),
  deeper: (address) => trace.parse(address) && go({ pin: address, depth: 3 }, true),
  hover: (address, value) => ($('where').textContent = `${address} = ${digits(value)}`),
  step: (t) => go({ t }),
  head: (head) => go({ head }),
  node: (n) => {
    const node = trace.document.beam[n];
    go({ node: n, t: Math.max(0, Math.min(trace.nSteps - 1, node.t)) });
    first('.tree .node.chosen')?.focus();
  },
  traceNode: (n) => (LIVE ? ask({ node: n }) : tell(say('needsLive'))),
  summarise,
  hopBack: () => state.trail.length && go({ pin: state.trail.at(-1), depth: 3, trail: state.trail.slice(0, -1) }, true),
  weights: LIVE ? fetchWeights : null,
};

// ---- where we are

function sideOf(station) {
  return station >= 16 ? 'dec' : 'enc';
}

function limits() {
  const { config } = trace;
  return { station: STATIONS.length, layer: sideOf(state.station) === 'enc' ? config.n_encoder_layers : config.n_decoder_layers, head: config.n_heads, t: trace.nSteps, i: trace.nSource };
}

function go(changes, isNew = false) {
  const moved = ['t', 'i', 'head', 'layer'].filter((key) => key in changes && changes[key] !== state[key]);
  if ('station' in changes && changes.station !== state.station && !('pin' in changes)) changes = { ...changes, pin: null, trail: [] };
  if ('pin' in changes && changes.pin !== state.pin && !('trail' in changes)) changes.trail = explained.operands.includes(changes.pin) && explained.address ? [...state.trail, explained.address] : [];
  Object.assign(state, changes);
  for (const [key, limit] of Object.entries(limits())) state[key] = Math.max(0, Math.min(limit - 1, state[key] || 0));
  if (moved.length && state.pin) state.pin = follow(state.pin, moved);
  if (changes.pin) enter(changes.pin, false);
  note(`#${hashOf()}`, isNew);
  render();
}

function note(hash, isNew) {
  try {
    if (hash !== location.hash) history[isNew ? 'pushState' : 'replaceState'](null, '', hash);
  } catch {
    // inside a notebook's frame there is no URL of our own to write to
  }
}

// Links within the page are followed here: inside a notebook's frame `#` would lead to the notebook.
function followLink(event) {
  const link = event.target.closest?.('a[href^="#"]');
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || link.id === 'skip') return;
  event.preventDefault();
  if (link.dataset.station) {
    travel(Number(link.dataset.station) - state.station);
    if (innerWidth <= 1100) $('map-holder').open = false;
    return;
  }
  $('check-dialog').close();
  readHash(link.getAttribute('href'));
  note(`#${hashOf()}`, true);
  render();
}

// The number that lies at the same place of another step, head or layer.
function follow(pin, moved) {
  const { name, index, tensor } = trace.parse(pin);
  const next = [...index];
  const skip = tensor.axes[0] === 'head' ? 1 : 0;
  if (moved.includes('head') && skip) next[0] = state.head;
  if (moved.includes('t') && tensor.axes[skip]?.startsWith('tgt')) next[skip] = state.t;
  if (moved.includes('i') && tensor.axes[skip]?.startsWith('src')) next[skip] = state.i;
  const other = moved.includes('layer') ? name.replace(/^(enc|dec)\.\d+\./, `$1.${state.layer}.`) : name;
  if (!trace.has(other)) return null;
  const address = trace.address(other, next);
  return trace.parse(address) ? address : null;
}

// Go where an address lies: its layer, head and row, and its station unless we may stay.
function enter(address, toStation) {
  const found = trace.parse(address);
  const skip = found.tensor.axes[0] === 'head' ? 1 : 0;
  const layer = /^(?:enc|dec)\.(\d+)\./.exec(found.name);
  if (toStation) state.station = homeOf(found.name);
  if (layer) state.layer = Number(layer[1]);
  if (skip && found.index.length) state.head = found.index[0];
  if (found.index.length > skip) state[found.tensor.axes[skip].startsWith('src') ? 'i' : 't'] = found.index[skip];
  return found.index.length === found.tensor.shape.length;
}

function hashOf() {
  if (state.pin) {
    const home = homeOf(trace.parse(state.pin).name);
    const extra = [home === state.station ? '' : `&station=${state.station}`, state.depth === 3 ? '' : `&depth=${state.depth}`, /^(dec|out)/.test(state.pin) || !state.t ? '' : `&t=${state.t}`];
    return state.pin + extra.join('');
  }
  const { station, layer, head, t, i, depth } = state;
  return Object.entries({ station, layer, head, t, i, depth: depth === 1 ? 0 : depth }).filter(([key, value]) => value || key === 'station').map(([key, value]) => `${key}=${value}`).join('&');
}

function readHash(hash = location.hash) {
  const parts = decodeURIComponent(hash.slice(1)).split('&').filter(Boolean);
  const address = parts[0] && !parts[0].includes('=') ? parts.shift() : null;
  const given = Object.fromEntries(parts.map((part) => part.split('=')));
  const before = state.pin;
  state.pin = null;
  if (address && trace.parse(address)) {
    const isNumber = enter(address, true);
    state.pin = isNumber ? address : null;
    state.depth = isNumber ? 3 : 1;
  } else if (address) tell(`${address}?`);
  else Object.assign(state, { layer: 0, head: 0, t: 0, i: 0, depth: 1 });
  for (const key of ['station', 'layer', 'head', 't', 'i', 'depth', 'node']) if (/^\d+$/.test(given[key] ?? '')) state[key] = Number(given[key]);
  for (const [key, limit] of Object.entries(limits())) state[key] = Math.min(limit - 1, state[key]);
  state.depth = Math.max(1, Math.min(3, state.depth));
  if (state.pin !== before) {
    const at = state.trail.indexOf(state.pin);
    if (at >= 0) state.trail = state.trail.slice(0, at);
    else state.trail = state.pin && explained.operands.includes(state.pin) ? [...state.trail, explained.address] : [];
  }
}

// ---- what is seen

function render() {
  const focus = document.activeElement;
  const isInside = $('station').contains(focus);
  const kept = isInside && [focus.id && `#${focus.id}`, focus.dataset.node && '.node.chosen', focus.dataset.address && `#station [data-address="${CSS.escape(focus.dataset.address)}"][tabindex="0"]`, focus.role === 'gridcell' && '#station [role=gridcell][tabindex="0"]', focus.matches('.follow') && '.follow'];
  renderHeader();
  renderMap();
  const view = new View(trace, state, on);
  const about = STATIONS[state.station];
  const text = textOf(about);
  const content = renderStation(view);
  const target = state.pin ?? view.main;
  const tensor = target ? trace.parse(target)?.tensor : null;
  explained = { address: null, operands: [] };
  let worked = null;
  if (state.depth === 3 && target && trace.parse(target)) {
    const names = (kind, n) => (kind === 'src' ? view.source[n] : kind === 'tgt' ? view.target[n] : `${say('channel')} ${n}`);
    const told = arithmetic(trace, target, { names, trail: state.trail, on });
    explained = { address: target, operands: told.operands };
    worked = told.element;
  } else if (state.depth === 3) worked = make('p.hint', say('nothingPinned'));
  $('number').textContent = about.id;
  $('title').textContent = text.title;
  $('idea').textContent = text.idea;
  renderChoices();
  $('station').replaceChildren(...[worked, ...content].filter(Boolean));
  if (view.summary !== null) summarise(view.summary);
  const node = first('.tree .node.chosen');
  if (node) node.closest('.tree').scrollLeft = node.offsetLeft - node.closest('.tree').clientWidth / 2;
  renderAside(about, text, tensor);
  renderFooter(target, tensor);
  paintAll();
  if (kept && !$('station').contains(document.activeElement)) kept.map((what) => what && first(what)).find(Boolean)?.focus({ preventScroll: true });
  document.title = `${about.id} ${text.title} · ${trace.document.run.src.slice(0, 40)}`;
}

function paintAll() {
  for (const canvas of all('#station canvas')) canvas.paint();
}

function summarise(text) {
  if ($('summary').textContent !== text) $('summary').textContent = text;
}

function tell(text) {
  $('message').textContent = text;
  $('message').hidden = !text;
}

function renderHeader() {
  const { tokens, steps, run, beam, model } = trace.document;
  const chips = (row, list, lang, key, kind) => {
    if (row.shows !== trace) row.replaceChildren(...list.map((token, n) => make('button.chip', { type: 'button', lang: lang || null, dir: 'auto', onclick: () => go({ [key]: n }) }, label(token))));
    [...row.children].forEach((one, n) => {
      const isNow = n === state[key];
      one.className = `chip ${kind} ${isNow ? 'chosen' : kind === 'tgt' && n > state.t ? 'later' : ''} ${list[n].mark ? 'mark' : ''} ${kind === 'tgt' && run.forced.some(([t]) => t === n) ? 'forced' : ''}`;
      one.ariaPressed = String(isNow);
      one.tabIndex = isNow ? 0 : -1;
    });
    if (row.shows !== trace || row.at !== state[key]) row.scrollTop = row.children[state[key]].offsetTop - row.offsetTop - 20;
    Object.assign(row, { shows: trace, at: state[key] });
  };
  chips($('source'), tokens.src, model.src_lang, 'i', 'src');
  chips($('target'), tokens.tgt.slice(1), model.tgt_lang, 't', 'tgt');
  const other = state.node !== null && state.node !== run.node && beam[state.node];
  $('other').replaceChildren(...(other ? [`${say('hypothesis')}: `, make('span', { lang: model.tgt_lang || null, dir: 'auto' }, pathOf(beam, other).map(label).join(' '))] : []));
  Object.assign($('scrubber'), { max: steps.length - 1, value: state.t });
  $('scrubber').setAttribute('aria-valuetext', `${state.t}: ${label(tokens.tgt[state.t + 1])}`);
  $('count').textContent = `t = ${state.t} / ${steps.length - 1}`;
  $('back').disabled = state.t === 0;
  $('forward').disabled = state.t === steps.length - 1;
  const current = state.node ?? run.node;
  $('beam').value = [...$('beam').options].some((option) => option.value === String(current)) ? current : run.node;
}

function renderChoices() {
  const { station, layer, head } = state;
  $('layer').textContent = `${layer} / ${limits().layer - 1}`;
  $('head').textContent = `${head} / ${trace.config.n_heads - 1}`;
  $('layers').disabled = !((station > 3 && station < 15) || (station > 16 && station < 22));
  $('heads').disabled = !((station > 3 && station < 12) || station === 17 || station === 19);
  for (const depth of [1, 2, 3]) $(`depth${depth}`).setAttribute('aria-pressed', String(state.depth === depth));
  $('previous').disabled = state.station === 0;
  $('next').disabled = state.station === STATIONS.length - 1;
  $('jump').value = state.station;
}

// Figure 1 of the paper as boxes, each with its address and its stations.
function renderMap() {
  if ($('map').dataset.language !== currentLanguage()) buildMap();
  const view = new View(trace, state, on);
  for (const box of all('#map [data-part]')) box.querySelector('code').textContent = box.dataset.part.replace(/^(enc|dec)\.\*/, (_, side) => view.at(side));
  for (const one of all('#map a')) {
    const isHere = Number(one.dataset.station) === state.station;
    one.ariaCurrent = isHere ? 'page' : null;
    if (!isHere) continue;
    for (const box of all('#map .box')) box.classList.toggle('here', box.contains(one));
    const nav = one.closest('nav');
    const [inner, outer] = [one.getBoundingClientRect(), nav.getBoundingClientRect()];
    if (nav.scrollHeight > nav.clientHeight) nav.scrollTop += Math.min(0, inner.top - outer.top - 60) + Math.max(0, inner.bottom - outer.bottom + 30);
  }
  drawArrow();
}

function buildMap() {
  const box = (title, part, stations, className = '') => make('div', { className: `box ${className} ${stations.length > 1 ? 'many' : ''}`, 'data-part': part }, make('span.name', title), make('code', part), make('span.stops', stations.map((n) => {
    const text = textOf(STATIONS[n]);
    return make('a', { href: `#station=${n}`, 'data-station': n, title: `${n} ${text.title}`, 'aria-label': `${n} ${text.title}` }, String(n));
  })));
  const name = (n) => textOf(STATIONS[n]).title;
  const { config } = trace;
  const norm = config.norm === 'pre' ? 'Norm, add' : 'Add & norm';
  $('map').replaceChildren(
    draw('svg', { id: 'arrow', 'aria-hidden': 'true' }),
    make('div.tower.enc', box(name(1), 'enc.ids', [1]), box(`${name(2)} + PE`, 'enc.sum', [2, 3]),
      make('div.stack', make('span.times', `× ${config.n_encoder_layers}`), box('Self-attention', 'enc.*.self', [4, 5, 6, 7, 8, 9, 10, 11], 'attention'), box(norm, 'enc.*.norm1', [12]), box('Feed-forward', 'enc.*.ff', [13]), box(norm, 'enc.*.norm2', [14])),
      box(say('memory'), 'memory', [15], 'memory')),
    make('div.tower.dec', box(name(16), 'dec.sum', [16]),
      make('div.stack', make('span.times', `× ${config.n_decoder_layers}`), box('Masked self-att.', 'dec.*.self', [17], 'attention'), box(norm, 'dec.*.norm1', [18]), box('Cross-attention', 'dec.*.cross', [19], 'attention cross'), box(norm, 'dec.*.norm2', [20]), box(`FFN, ${norm}`, 'dec.*.ff', [21])),
      box(name(22), 'out.logits', [22]), box('Softmax', 'out.probs', [23]), box(name(24), 'beam', [24, 25, 26, 27])),
    make('div.whole', box(name(0), 'glassformer', [0])));
  $('jump').replaceChildren(...STATIONS.map((one) => make('option', { value: one.id }, `${one.id} ${textOf(one).title}`)));
  $('map').dataset.language = currentLanguage();
}

function drawArrow() {
  const [from, to, map] = [first('.box.memory'), first('.box.cross'), $('map')].map((element) => element?.getBoundingClientRect());
  if (!from?.width) return;
  const [x1, y1, x2, y2] = [from.right - map.left, from.top + from.height / 2 - map.top, to.left - map.left - 1, to.top + to.height / 2 - map.top];
  $('arrow').replaceChildren(draw('path', { d: `M ${x1} ${y1} H ${(x1 + x2) / 2} V ${y2} H ${x2} m -5 -4 l 5 4 l -5 4` }));
}

function renderAside(about, text, tensor) {
  const operation = tensor ? trace.document.operations?.[tensor.op] : null;
  $('formula').replaceChildren(make('h3', say('formula')), formula(about.formula.replace(trace.config.norm === 'pre' && 'x + sublayer', 'x; x + sublayer(y)')));
  $('words').replaceChildren(make('h3', say('words')), make('p', text.words));
  $('code').replaceChildren(...(tensor ? [make('h3', say('code')), make('p.hint', tensor.code), make('pre', { tabindex: '0' }, tensor.line), ...(operation ? [make('p.hint', `${tensor.op} · ${operation.code}`), make('pre', { tabindex: '0' }, operation.source)] : [])] : []));
  $('notes').replaceChildren(...(text.erratum ? [make('h3', say('notes')), make('p', text.erratum)] : []));
  $('notes').hidden = !text.erratum;
}

function renderFooter(target, tensor) {
  $('where').textContent = target && trace.parse(target) ? `${target} = ${digits(trace.at(target))}` : '';
  $('shape').replaceChildren(...(tensor ? [`${say('shape')} ${tensor.shape.join(' × ')} (${tensor.axes.join(', ')})`] : []));
  $('unpin').hidden = !state.pin;
}

function renderBadge() {
  const bad = checks.results.filter((one) => !one.isRight);
  const checked = checks.results.filter((one) => one.kind !== 'given' && one.kind !== 'derived');
  const most = Math.max(0, ...checked.map((one) => one.most));
  const badge = $('badge');
  badge.dataset.state = bad.length ? 'bad' : checks.isDone ? 'good' : 'busy';
  badge.replaceChildren(...(bad.length ? [`✗ ${bad.length} ${say('checkFailed')}`] : checks.isDone ? [`✓ ${checked.length} ${say('checked')}`, make('span.long', `, |Δ| ≤ ${tiny(most)}`)] : [say('checking')]));
  if (!checks.isDone) return;
  const kinds = ['recomputed', 'projected', 'weights', 'given', 'derived'].map((kind) => [kind, checks.results.filter((one) => one.kind === kind).length]);
  const rows = checked.sort((a, b) => a.isRight - b.isRight || b.most - a.most).slice(0, 60).map((one) => {
    const name = one.at ?? one.name;
    const address = one.worst ? trace.address(name, one.worst) : '';
    return { className: one.isRight ? '' : 'bad', cells: [`${one.isRight ? '✓' : '✗'} ${one.name}`, number(one.most, `max|Δ|(${one.name})`, tiny(one.most)), make('a', { href: `#${address}` }, address)] };
  });
  $('checks').replaceChildren(
    make('p', say('checkIntro')), make('b', bad.length ? say('checkBad', bad.length) : say('checkSay', checked.length, tiny(most))),
    make('ul', kinds.map(([kind, n]) => n > 0 && make('li', `${n} × ${say(kind)}`))), table(['tensor', 'difference', 'where'].map((key) => say(key)), rows));
}

// ---- keys, buttons, the live server

function travel(by) {
  go({ station: state.station + by, depth: Math.min(2, state.depth) }, true);
}

function unpin() {
  go({ pin: null, depth: state.depth === 3 ? 1 : state.depth });
}

function by(key, amount) {
  return () => go({ [key]: state[key] + amount });
}

function keydown(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || first('dialog[open]')) return;
  const field = event.target.closest('input, select, textarea');
  if (field && !(field.type === 'range' && !event.key.startsWith('Arrow') && event.key !== 'Home' && event.key !== 'End')) return;
  const actions = {
    ArrowLeft: by('t', -1), ArrowRight: by('t', 1), '[': by('layer', -1), ']': by('layer', 1), ',': by('head', -1), '.': by('head', 1), n: () => travel(1), p: () => travel(-1),
    1: () => go({ depth: 1 }), 2: () => go({ depth: 2 }), 3: () => go({ depth: 3 }), Enter: () => go({ depth: 3 }), f: force, '?': () => $('key-dialog').showModal(), Escape: unpin, Backspace: on.hopBack,
  };
  if (!(event.key in actions)) return;
  if (event.key === 'Enter' && event.target.closest('a, button, summary')) return;
  if (event.key.startsWith('Arrow') && event.target.closest('.scroll, pre')) return;
  event.preventDefault();
  actions[event.key]();
}

async function fetchWeights({ name, column }) {
  const response = await fetch(`api/weights${location.search}&name=${encodeURIComponent(name)}&column=${column}`);
  if (!response.ok) return;
  const { weights, bias } = await response.json();
  trace.columns.set(`${name}:${column}`, { weights, bias });
  render();
}

// Ask the live server for another translation: another sentence, forced words, another hypothesis.
async function ask(wish) {
  tell(say('working'));
  document.body.classList.add('busy');
  try {
    const { src, forced } = trace?.document.run ?? { src: '', forced: [] };
    const response = await fetch(`api/trace${location.search}`, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ text: src, forced, ...wish }) });
    const answer = await response.json();
    if (!response.ok) throw new Error(answer.error);
    tell('');
    await show(answer);
  } catch (error) {
    tell(`${say('error')}: ${error.message}`);
  } finally {
    document.body.classList.remove('busy');
  }
}

function force() {
  const { steps, vocabulary, model, run } = trace.document;
  const step = steps[state.t];
  const list = make('div.options');
  const field = make('input', { type: 'search', id: 'force-word', autocomplete: 'off' });
  const choose = (id) => {
    $('force-dialog').close();
    const kept = run.forced.filter(([t]) => t < state.t);
    if (LIVE) ask({ forced: [...kept, [state.t, id]] });
    else tell(say('needsLive'));
  };
  const fill = () => {
    const ids = field.value ? matching(vocabulary, field.value).slice(0, 24) : step.top.map((word) => word.id);
    list.replaceChildren(...ids.map((id) => make('button', { type: 'button', lang: model.tgt_lang || null, className: id === step.chosen ? 'chosen' : null, onclick: () => choose(id) }, vocabulary[id])));
  };
  field.addEventListener('input', fill);
  fill();
  $('force-body').replaceChildren(make('p', make('label', { for: 'force-word' }, say('forceAsk', state.t + 1))), LIVE ? '' : make('p.hint', say('needsLive')), field, list,
    run.forced.length ? make('button', { type: 'button', className: 'button', onclick: () => { $('force-dialog').close(); if (LIVE) ask({ forced: [] }); else tell(say('needsLive')); } }, say('unforce')) : '');
  $('force-dialog').showModal();
}

function play() {
  if (player || state.t === trace.nSteps - 1) {
    clearInterval(player);
    player = null;
  } else player = setInterval(() => (state.t < trace.nSteps - 1 ? go({ t: state.t + 1 }) : play()), 900);
  $('play').textContent = player ? '❚❚' : '▶';
  $('play').setAttribute('aria-label', say(player ? 'pause' : 'play'));
}

function words() {
  document.documentElement.lang = currentLanguage();
  for (const element of all('[data-say]')) element.textContent = say(element.dataset.say);
  for (const element of all('[data-label]')) {
    element.setAttribute('aria-label', say(element.dataset.label));
    element.title = say(element.dataset.label);
  }
  $('key-list').replaceChildren(...say('keyList').flatMap(([key, what]) => [make('dt', make('kbd', key)), make('dd', what)]));
  $('sentence').placeholder = say('type');
}

// What the reader chose, kept if the browser lets a page from disk keep anything.
function setting(key, value) {
  try {
    if (value) localStorage.setItem(`glassformer.${key}`, value);
    return localStorage.getItem(`glassformer.${key}`);
  } catch {
    return null;
  }
}

function wear(theme) {
  document.documentElement.dataset.theme = theme;
  $('theme').value = theme;
  readPalette();
  if (trace) paintAll();
}

function connect() {
  const clicks = {
    back: by('t', -1), forward: by('t', 1), play, force, previous: () => travel(-1), next: () => travel(1), 'layer-less': by('layer', -1), 'layer-more': by('layer', 1), 'head-less': by('head', -1), 'head-more': by('head', 1),
    depth1: () => go({ depth: 1 }), depth2: () => go({ depth: 2 }), depth3: () => go({ depth: 3 }), unpin, badge: () => $('check-dialog').showModal(), help: () => $('key-dialog').showModal(), skip: (event) => (event.preventDefault(), $('station').focus()),
  };
  for (const [id, action] of Object.entries(clicks)) $(id).addEventListener('click', action);
  for (const button of all('dialog .close')) button.addEventListener('click', () => button.closest('dialog').close());
  $('scrubber').addEventListener('input', (event) => go({ t: Number(event.target.value) }));
  $('jump').addEventListener('change', (event) => travel(Number(event.target.value) - state.station));
  $('beam').addEventListener('change', (event) => {
    const n = Number(event.target.value);
    go({ node: n });
    if (n !== trace.document.run.node) on.traceNode(n);
    else tell('');
  });
  $('theme').addEventListener('change', (event) => {
    setting('theme', event.target.value);
    wear(event.target.value);
  });
  $('language').addEventListener('change', (event) => {
    setting('language', event.target.value);
    setLanguage(event.target.value);
    words();
    renderBadge();
    render();
  });
  $('ask').addEventListener('submit', (event) => {
    event.preventDefault();
    Object.assign(state, { t: 0, i: 0, pin: null, node: null, trail: [] });
    ask({ text: $('sentence').value, forced: [] });
  });
  for (const [id, key] of [['source', 'i'], ['target', 't']]) {
    $(id).addEventListener('keydown', (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!by) return;
      event.preventDefault();
      event.stopPropagation();
      go({ [key]: state[key] + by });
      $(id).querySelector('.chosen')?.focus({ preventScroll: true });
    });
  }
  document.addEventListener('keydown', keydown);
  document.addEventListener('click', followLink);
  window.addEventListener('hashchange', () => {
    readHash();
    render();
  });
  new ResizeObserver(() => trace && (paintAll(), drawArrow())).observe(first('main'));
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => wear(document.documentElement.dataset.theme));
}

async function show(traceDocument) {
  trace = await openTrace(traceDocument);
  const { run, model, beam } = traceDocument;
  state.node = null;
  const ended = beam.filter((node) => node.state === 'winner' || node.state === 'finished').sort((a, b) => b.score - a.score);
  $('beam').replaceChildren(...ended.map((node, n) => make('option', { value: node.n }, `${n + 1} ${node.state === 'winner' ? '★' : ''} ${brief(node.score)} ${pathOf(beam, node).map(label).join(' ').slice(0, 60)}`)));
  $('sentence').value = run.src;
  $('model-name').textContent = model.name;
  const warnings = [run.engine && !run.engine.same ? say('engineSays', run.engine.name, run.engine.text) : '', run.ended ? '' : say('notEnded'), run.forced.length ? say('forcedRun') : ''].filter(Boolean);
  $('warnings').replaceChildren(...warnings.map((text) => make('p', text)));
  $('map').dataset.language = '';
  readHash();
  render();
  document.body.classList.add('ready');
  checks = { results: [], isDone: false };
  renderBadge();
  const shown = trace;
  await checkAll(trace, (results, isDone) => {
    if (shown !== trace) return;
    checks = { results: [...results], isDone };
    renderBadge();
  });
  document.body.classList.add('checked');
}

async function begin() {
  setLanguage(setting('language') ?? (navigator.language.startsWith('fr') ? 'fr' : 'en'));
  $('language').value = currentLanguage();
  wear(setting('theme') ?? 'auto');
  words();
  connect();
  if (innerWidth <= 1100) $('map-holder').open = false;
  $('ask').hidden = !LIVE;
  const stored = $('trace').textContent.trim();
  if (stored) await show(JSON.parse(stored));
  else if (LIVE) await ask({});
  else tell('no trace');
}

await begin();
