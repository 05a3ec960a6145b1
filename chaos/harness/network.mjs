/**
 * What the network does to calls of scripts: which fault is to meet the next call of which script, and how often each has met
 * each. A call is struck only where it is wanted, so that every cell of the table gets its share.
 */
import { nowUs } from './clock.mjs'

export const networkFaults = ['request lost', 'reply lost', 'doubled']
const rare = /fsck/ // it reads the whole log each time
const restMs = 30 // between two faults: a process that is cut again while it reconnects shows nothing new

/** `scripts`: the names of those that are counted and may be struck. */
export function createNetwork({ history, random, scripts: names }) {
  const wanted = new Map(names.map((name) => [name, []]))
  const calls = new Map(names.map((name) => [name, 0]))
  let quietUntil = 0
  return {
    calls,
    seen(scripts) {
      for (const script of scripts) calls.set(script, calls.get(script) + 1)
    },
    /** Each fault is to meet each script so often. */
    want(times) {
      for (const [script, list] of wanted) {
        const some = rare.test(script) ? Math.ceil(times / 5) : times
        list.push(...random.shuffled(Array.from({ length: some }, () => networkFaults).flat()))
      }
    },
    get missing() {
      return [...wanted.values()].reduce((sum, list) => sum + list.length, 0)
    },
    forget() {
      for (const list of wanted.values()) list.length = 0
    },
    /** `scripts`: all that a call does. */
    faultOf(scripts, worker) {
      const script = scripts.find((name) => (wanted.get(name)?.length ?? 0) > 0)
      if (script === undefined) return undefined
      const t = nowUs()
      if (t < quietUntil) return undefined
      quietUntil = t + restMs * 1000
      const fault = wanted.get(script).pop()
      history.add('network', { t, until: t, fault, script, worker })
      return fault
    },
  }
}
