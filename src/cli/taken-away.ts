/** What a queue was told and is not told any more: a definition is put as a whole, so what is left unsaid goes. */
import { formatDuration } from '../duration.ts'
import type { QueueFacts } from '../index.ts'
import { defaultSecrets, plain } from '../operations/redact.ts'
import { checkQueue } from '../sinks/queue/options.ts'
import { printable } from './printable.ts'
import { limitWords, trackText } from './queue-tables.ts'

/** As `busbar queue put` takes them. What only has another value now is not among them. */
export function takenAway(before: QueueFacts, now: QueueFacts): string[] {
  const said = wordsOf(now)
  const gone = [...wordsOf(before)].filter(([name]) => !said.has(name)).map(([, word]) => word)
  return [...gone, ...shownNow(before, now)].map(printable)
}

const byDefault = checkQueue({}).settings

/** What is not as by default, by what it is about: each pattern, each tenant, each limit. */
function wordsOf({ match, weights, attempts, backoffMs, leaseMs, onPoison, limits, track }: QueueFacts) {
  const words: [name: string, word: string, isSaid: boolean][] = [
    ...[match ?? []].flat().map((pattern) => same(`match ${pattern}`)),
    ...Object.entries(weights).map(([tenant, weight]) => named(`weight ${tenant}`, `weight ${tenant}=${weight}`)),
    ['attempts', `attempts ${attempts || 'Infinity'}`, attempts !== byDefault.attempts],
    ['backoff', `backoff ${backoffText(backoffMs)}`, backoffText(backoffMs) !== backoffText(byDefault.backoffMs)],
    ['lease', `lease ${formatDuration(leaseMs)}`, leaseMs !== byDefault.leaseMs],
    ['on-poison', `on-poison ${onPoison}`, onPoison !== byDefault.onPoison],
    ...limitWords(limits).map((word) => named(word.split(' ')[0]!, word, word !== 'overflow hold')),
    ['track', `track ${trackText(track)}`, track !== byDefault.track],
  ]
  return new Map(words.filter(([, , isSaid]) => isSaid).map(([name, word]) => [name, word]))
}

const named = (name: string, word: string, isSaid = true): [string, string, boolean] => [name, word, isSaid]
const same = (word: string) => named(word, word)
const backoffText = (backoffMs: readonly number[]): string => backoffMs.map(formatDuration).join(',')

/** Where nothing is tracked nothing is shown: then only what somebody has listed is worth a word. */
function shownNow(before: QueueFacts, now: QueueFacts): string[] {
  const hidden = new Set([...now.redact, ...(now.track === false ? defaultSecrets : [])].map(plain))
  const shown = before.redact.filter((field) => !hidden.has(plain(field)))
  return shown.length === 0 ? [] : [`redact ${shown.join(' ')}`]
}
