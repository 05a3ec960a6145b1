/**
 * From calls that a proxy saw to facts: which batches were given to whom, and what became of them.
 *
 *   leased    { token, leaseMs, batches: [{ id, hook, sequence }] }   a claim was answered with these
 *   settled   { token, id, outcome, word }                            word: settled, stale, or unsure without an answer
 *
 * Each with t, when the call was passed on, answeredAt, and the actor.
 */
import { hookActsIn, readCall, valuesOf, wordsBefore } from './scripts.mjs'

/** Answers a list of [kind, fact]. */
export function hookFactsOf({ scripts, frame, reply }) {
  if (!scripts.some((script) => /^hook (claim|settle|ack)$/.test(script)) || reply instanceof Error) return []
  const acts = hookActsIn(readCall(frame).args).filter(({ act }) => act !== 'ended')
  return acts.flatMap(({ act, words }, i) => (act === 'claim' ? claim(words, reply?.[i]) : settle(words, reply?.[i])))
}

function claim([, token, , leaseMs], reply) {
  if (reply?.[0] !== 'claimed') return []
  const batches = reply.slice(5).map((item) => {
    const words = item.slice(0, item.indexOf('\n')).split(' ')
    return { id: words[0], hook: words[2], sequence: words[7] }
  })
  return batches.length === 0 ? [] : [['leased', { token, leaseMs: Number(leaseMs), batches }]]
}

function settle(words, reply) {
  if (reply?.[0] === 'gone') return []
  const stale = new Set(reply?.slice(1) ?? [])
  const facts = []
  let place = 0
  for (let at = 1; at < words.length; ) {
    const [token, outcome, size] = words.slice(at, at + 3)
    const step = valuesOf[outcome]
    for (let i = 0; i < Number(size); i += 1) {
      place += 1
      const word = !reply ? 'unsure' : stale.has(place) ? 'stale' : 'settled'
      facts.push(['settled', { token, id: words[at + wordsBefore(outcome) + i * step], outcome, word }])
    }
    at += wordsBefore(outcome) + Number(size) * step
  }
  return facts
}
