// One number, taken apart: its formula with the numbers filled in, its operands to follow, its summands as bars.

import { digits } from './numbers.js';
import { bySize, explainCell } from './trace.js';
import { projections } from './check.js';
import { link, make, number, track } from './parts.js';
import { say } from './words.js';

const SHOWN = 8; // summands by name; the others are one number
const BY_SIZE = ['add', 'mean', 'rotate']; // operations whose largest operand is followed

// What the largest part of a number comes from: the address to follow it back to, or null.
function largestPart(trace, told) {
  const real = (operand) => (operand?.address && trace.parse(operand.address) ? operand.address : null);
  if (told.terms) return real(told.terms[0].factors[told.tensor.op === 'weighted_sum' ? 1 : 0]);
  return real((told.wants || BY_SIZE.includes(told.tensor.op) ? bySize(told.operands) : told.operands)[0]);
}

export function arithmetic(trace, address, { names, trail, on }) {
  const found = trace.parse(address);
  const told = explainCell(trace, found.name, found.index);
  const operation = trace.document.operations?.[told.tensor.op];
  const result = number(told.value, address, undefined, { className: 'result', id: 'explained' });
  const shown = told.terms || told.wants ? [] : told.operands.slice(0, SHOWN);
  const next = largestPart(trace, told);
  const element = make('section.arithmetic', { 'aria-label': say('arithmetic') },
    trail.length > 0 && make('nav.trail', { 'aria-label': say('trail') },
      make('span', say('trail')),
      trail.map((one) => make('a', { href: `#${one}` }, one)),
      make('button', { type: 'button', onclick: on.hopBack }, say('hopBack'))),
    make('h3', make('code', address), ' = ', result),
    make('p.hint', make('code', told.tensor.op), operation ? ` ${operation.says}` : ''),
    told.note && make('p', say(told.note)),
    told.equation && equation(trace, told.equation, told),
    told.terms && summands(trace, told, names),
    told.wants && withoutWeights(trace, told, on),
    shown.length > 0 && origins(trace, shown, told.operands.length > SHOWN),
    next && make('p', make('a.button.follow', { href: `#${next}` }, `↩ ${say('follow')}`)));
  return { element, operands: told.operands.map((operand) => operand.address) };
}

function origins(trace, operands, isPart) {
  const origin = (operand, n) => [n ? ', ' : '', operand.address, ' = ', shownNumber(trace, operand)];
  return make('p.operands', `${say('comesFrom')} `, operands.map(origin), isPart ? ' …' : '');
}

function shownNumber(trace, { value, address }) {
  return address && trace.parse(address) ? link(value, address) : number(value, address);
}

// Texts and numbers in a row; a negative number after an operator stands in brackets.
function line(trace, parts) {
  return parts.map((part, n) => {
    if (typeof part === 'string') return part;
    const before = n ? parts[n - 1] : '';
    const bracket = part.value < 0 && typeof before === 'string' && /[−+×/] $/.test(before);
    return bracket ? ['(', shownNumber(trace, part), ')'] : shownNumber(trace, part);
  });
}

function equation(trace, parts, told) {
  const result = number(told.value, told.address, undefined, { className: 'result' });
  return make('p.equation.big', line(trace, parts), ' = ', result);
}

function summands(trace, told, names) {
  const top = told.terms.slice(0, SHOWN);
  const rest = told.terms.slice(SHOWN).reduce((sum, term) => sum + term.value, 0);
  const most = Math.max(...told.terms.map((term) => Math.abs(term.value)), 1e-12);
  const product = (term) => term.factors.map((factor) => factor.address).join('*');
  const written = ({ factors: [a, b] }) => line(trace, [a, ' × ', b]);
  const rows = top.map((term) => make('li',
    make('span.label', names(told.summands, term.at)),
    make('span.equation', written(term), ' = ', number(term.value, product(term))),
    track(term.value / most)));
  const parts = top.flatMap((term, n) => [n ? ' + ' : '', { value: term.value, address: product(term) }]);
  const others = told.terms.length - top.length;
  if (others) parts.push(' + ', { value: rest, address: `rest(${told.address})` });
  for (const bias of told.extra) parts.push(' + ', bias);
  const legend = told.extra.map((bias) => `${say('bias')}: ${digits(bias.value)}`);
  if (others) legend.unshift(`${say('rest', others)}: ${digits(rest)}`);
  return [
    make('p', say('sumOf', told.terms.length)),
    make('ul.bars.signed.terms', rows),
    legend.length > 0 && make('p.hint', legend.join(' · ')),
    equation(trace, parts, told),
  ];
}

// A linear map without its weights: ask the live server for them, or show that the projection agrees.
function withoutWeights(trace, told, on) {
  if (on.weights) {
    on.weights(told.wants);
    return make('p.hint', say('askWeights'));
  }
  const { tensor, name, row } = told;
  const { input, output } = tensor.check ? projections(trace, tensor, row) : {};
  return [
    tensor.check && make('p.equation',
      'x · (Wᵀr) + b · r = ', number(input, `project(${tensor.in[0]}[${row}])`),
      make('span.hint', '   y · r = '), number(output, `project(${name}[${row}])`)),
    origins(trace, bySize(told.operands).slice(0, SHOWN), true),
  ];
}
