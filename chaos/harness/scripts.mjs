/** The scripts of queues, webhooks and routing by the bytes of a command: which it calls, with which keys and arguments. */
import * as acts from '../../dist/lanes/acts.js'
import * as lanes from '../../dist/lanes/scripts.js'
import * as route from '../../dist/route/scripts.js'
import * as next from '../../dist/sinks/queue/next.js'
import * as hooks from '../../dist/sinks/webhook/scripts.js'

const namesOf = {
  lanes: 'make send renew extend enter pause peek redrive discard parked remove fsck'.split(' '),
  route: 'put table commit remove removed fsck'.split(' '),
  hooks: 'make accept pause letters rotate drop remove inspect'.split(' '),
}
const scriptsIn = (exported, names, prefix = '') => {
  const all = new Map(Object.entries(exported))
  return names.map((name) => [`${prefix}${name}`, all.get(`${name}Script`)])
}
const work = 'work'
/** Both accept and claim one event. */
const lones = ['lone', 'next']
const hookWork = 'hook work'
const rows = [
  ...scriptsIn(lanes, namesOf.lanes),
  ...scriptsIn({ ...acts, ...next }, [work, ...lones]),
  ...scriptsIn(route, namesOf.route, 'route '),
  ...scriptsIn(hooks, [...namesOf.hooks, work], 'hook '),
]

/** Every script of lanes/ and route/, and for work.lua its acts. A claim without a lease is called pop: it is safe against other things. */
export const orderedScriptNames = [
  ...rows.map(([name]) => name).filter((name) => name !== work && !lones.includes(name) && !name.startsWith('hook ')),
  ...['settle', 'accept', 'claim', 'pop'],
]
/** Without those that only ordered queues need. */
export const scriptNames = orderedScriptNames.filter((name) => name !== 'parked')

/**
 * Every script of webhooks and those of routing, and for work.lua its acts. A settle in which something was delivered is called ack. Nothing here
 * is short of memory, so nothing is dropped.
 */
export const hookScriptNames = [
  ...rows
    .map(([name]) => name)
    .filter((name) => /^(hook|route) /.test(name) && name !== hookWork && name !== 'hook drop'),
  ...['hook claim', 'hook settle', 'hook ack', 'renew', 'fsck'],
]

const bySha = new Map(rows.map(([name, { sha }]) => [sha, name]))
const bySource = new Map(rows.map(([name, { source }]) => [source, name]))
const bySha1 = /^\*\d+\r\n\$7\r\nevalsha\r\n\$40\r\n([0-9a-f]{40})\r\n/i
const bySource1 = /^\*\d+\r\n\$4\r\neval\r\n\$(\d+)\r\n/i

/** How many arguments every script of a store is given before its own. */
export const commonArgs = acts.workScript.args({ keys: {}, acts: [] }).length
export const hookArgs = hooks.workScript.args({ keys: {}, ended: [], claim: undefined }).length

/** Answers the names of what the call does; undefined for any other command. */
export function scriptsOf(frame) {
  const start = frame.toString('latin1', 0, 80)
  const sha = bySha1.exec(start)?.[1]
  const name = sha ? bySha.get(sha) : nameOfSource(frame, bySource1.exec(start))
  if (name === undefined) return undefined
  if (name === hookWork) return [...new Set(hookActsIn(readCall(frame).args).flatMap(namesOfHookAct))]
  if (lones.includes(name)) return ['accept', 'claim']
  return name === work ? [...new Set(actsIn(readCall(frame).args).map(nameOfAct))] : [name]
}

const nameOfAct = ({ act, words }) => (act === 'claim' && words[1] === '' ? 'pop' : act)

function namesOfHookAct({ act, words }) {
  if (act === 'ended') return []
  return act === 'settle' && words.includes('ack') ? ['hook ack'] : [`hook ${act}`]
}

/** How many words a group has before its items. */
export const wordsBefore = (outcome) => (outcome === 'all' || outcome === 'outputs' ? 5 : 4)

/** How many values an item has behind its outcome. */
export const valuesOf = { all: 0, outputs: 1, ack: 1, done: 2, back: 1, retry: 3, dead: 2, throttle: 2 }

const sizes = {
  settle: sizeOfSettle,
  inputs: (words) => 2 + 2 * Number(words[0]) + 2 * Number(words[1 + 2 * Number(words[0])]),
  accept: (words) => 7 + (words[6] === '1' ? 3 : 2) * Number(words[5]),
  claim: () => 7,
  ended: (words) => 1 + 3 * Number(words[0]),
}

function sizeOfSettle(words) {
  let at = 1
  for (let groups = Number(words[0]); groups > 0; groups -= 1)
    at += wordsBefore(words[at + 1]) + Number(words[at + 2]) * valuesOf[words[at + 1]]
  return at
}

/** The acts of a call of work.lua, lone.lua or next.lua, each with its words. */
export const actsIn = (args) => (args[0].includes(' ') ? loneActs(args) : actsFrom(args, commonArgs))
export const hookActsIn = (args) => actsFrom(args, hookArgs)

/** The first argument of lone.lua and next.lua has all of it in words; that of work.lua is a time. Nobody asks which event it is. */
function loneActs([said]) {
  const [, , field, revision, born, ...wish] = said.split(' ')
  return [
    { act: 'accept', words: [field, revision, born] },
    { act: 'claim', words: wish },
  ]
}

function actsFrom(args, start) {
  const found = []
  for (let at = start; at < args.length; ) {
    const act = args[at]
    const rest = args.slice(at + 1)
    const words = rest.slice(0, sizes[act](rest))
    // It only says something of the one behind it, and has no answer.
    if (act !== 'inputs') found.push({ act, words })
    at += 1 + words.length
  }
  return found
}

function nameOfSource(frame, found) {
  if (!found) return undefined
  const at = found[0].length
  return bySource.get(frame.toString('utf8', at, at + Number(found[1])))
}

/** Answers { queue, args }. */
export function readCall(frame) {
  const words = []
  let at = frame.indexOf('\r\n') + 2
  while (at < frame.length) {
    const endOfLine = frame.indexOf('\r\n', at)
    const start = endOfLine + 2
    const end = start + Number(frame.toString('latin1', at + 1, endOfLine))
    words.push(frame.toString('utf8', start, end))
    at = end + 2
  }
  const keys = Number(words[2])
  return { queue: /\{queue\.([^}]*)\}/.exec(words[3])?.[1], args: words.slice(3 + keys) }
}
