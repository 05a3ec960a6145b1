/**
 * From calls that a proxy saw to facts. Only what was given, held, settled or moved is of interest; calls that nobody
 * answered are told as such, because they may have been carried out.
 *
 *   granted   { queue, token, now, leaseMs, wanted, ids, attempts }  a claim for so many was answered with these; token '' took them
 *             for good
 *   short     { queue, now, isAll }                         a claim was given less than it asked for; isAll: nothing was left to bring back
 *   unsure    { queue, script, token, wanted }               a claim or pop for so many that has no answer
 *   settled   { queue, token, id, outcome, word }            word: settled, stale, or unsure without an answer
 *   renewed   { queue, tokens, leaseMs }                     those that were held
 *   extended  { queue, token, id, own, now, leaseMs, word }
 *   entered   { queue, name }                                what earlier starts of this name held went back
 *   redriven, discarded { queue, ids }
 *   unparked  { queue, act, objects, items }                 parked objects went on, or were given up with so many items
 *
 * Each with t, when the call was passed on, answeredAt, and the actor.
 */
import { actsIn, commonArgs, readCall, valuesOf, wordsBefore } from './scripts.mjs'

/** Answers a list of [kind, fact]. */
export function factsOf({ scripts, frame, reply }) {
  if (!scripts.some((script) => readers[script])) return []
  if (reply instanceof Error && !/^UNKNOWN/.test(reply.message)) return []
  const { queue, args } = readCall(frame)
  const facts = isWork(scripts)
    ? actsIn(args).flatMap(({ act, words }, i) => readers[act]?.(words, answersIn(reply)?.[i]) ?? [])
    : readers[scripts[0]](args.slice(commonArgs), reply)
  return facts.map(([kind, fact]) => [kind, { queue, ...fact }])
}

/** next.lua answers for both of its acts at once, and for the publish. */
function answersIn(reply) {
  if (typeof reply?.[0] !== 'string') return reply
  const [, , , , words, item] = reply
  if (words === undefined) return [['left'], ['left']]
  const [revision, now, due] = words.split(' ')
  return [
    ['accepted', 1],
    ['claimed', Number(revision), now, 0, Number(due), item],
  ]
}

const isWork = (scripts) => ['settle', 'accept', 'claim', 'pop'].includes(scripts[0])

const readers = {
  claim,
  pop: claim,
  settle,
  renew,
  extend,
  enter,
  redrive: moved('redriven'),
  discard: moved('discarded'),
  parked: unparked,
}

/** What each token was given: a whole lease is settled by its token alone. */
const givenTo = new Map()

function claim([, token, n, leaseMs], reply) {
  if (!reply) return [['unsure', { script: token === '' ? 'pop' : 'claim', token, wanted: Number(n) }]]
  const [word, , now, more, due, ...items] = reply
  if (word !== 'claimed') return []
  // A claim that is repeated answers what it was given before, and looks at nothing else: then it does not say what is due either.
  const isRepeated = items.length > 0 && due === -1
  const short = items.length < Number(n) ? [['short', { now: Number(now), isAll: more === 0 && !isRepeated }]] : []
  if (items.length === 0) return short
  const headers = items.map((item) => item.slice(0, item.indexOf('\n')).split(' '))
  const ids = headers.map(([id]) => id)
  const attempts = headers.map((header) => Number(header[3]))
  if (token !== '') givenTo.set(token, ids)
  const lease = { token, now: Number(now), leaseMs: Number(leaseMs), wanted: Number(n) }
  return [['granted', { ...lease, ids, attempts }], ...short]
}

function settle(args, reply) {
  if (reply?.[0] === 'gone') return []
  const stale = new Set(reply?.slice(1) ?? [])
  const facts = []
  let place = 0
  for (let at = 1; at < args.length; ) {
    const [token, outcome, size] = args.slice(at, at + 3)
    const step = valuesOf[outcome]
    const isWhole = outcome === 'all' || outcome === 'outputs'
    for (let i = 0; i < Number(size); i += 1) {
      place += 1
      const word = !reply ? 'unsure' : stale.has(place) ? 'stale' : 'settled'
      // Done is an ack with an output.
      const said = isWhole || outcome === 'done' ? 'ack' : outcome
      const id = isWhole ? givenTo.get(token)[i] : args[at + wordsBefore(outcome) + i * step]
      facts.push(['settled', { token, id, outcome: said, word }])
    }
    at += wordsBefore(outcome) + Number(size) * step
  }
  return facts
}

function renew([leaseMs, ...tokens], reply) {
  if (!reply) return []
  const lost = new Set(reply.slice(1))
  return [['renewed', { leaseMs: Number(leaseMs), tokens: tokens.filter((token) => !lost.has(token)) }]]
}

function extend([token, id, ms, ownToken], reply) {
  const word = reply?.[0] ?? 'unsure'
  const now = word === 'extended' ? Number(reply[2]) - Number(ms) : undefined
  return [['extended', { token, id, own: ownToken, leaseMs: Number(ms), now, word }]]
}

function enter([act, name], reply) {
  return act === 'enter' && reply?.[0] !== 'gone' ? [['entered', { name }]] : []
}

function moved(kind) {
  return (ids, reply) => (reply?.[0] === 'gone' ? [] : [[kind, { ids }]])
}

function unparked([act, ...objects], reply) {
  return reply?.[0] === 'done' && reply[1] + reply[2] > 0 ? [['unparked', { act, objects, items: reply[2] }]] : []
}
