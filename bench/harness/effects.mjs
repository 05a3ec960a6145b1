/**
 * Effects of handlers, written to one file by several processes, some of which are killed: each is a line with the event's
 * number, appended with one write before the event is acknowledged. What stands there is what happened, in this order.
 */
import { openSync, readFileSync, writeSync } from 'node:fs'
import { eventSource, keyNumberOf, placeOf } from './events.mjs'

export function effectWriter(file) {
  const fd = openSync(file, 'a')
  return (i) => void writeSync(fd, `${i}\n`)
}

/** A line that was cut off by a kill was no effect. */
export function readEffects(file) {
  const lines = readFileSync(file, 'utf8').split('\n')
  lines.pop()
  return lines.map(Number)
}

/** How many events have had their effect. */
export const countDone = (effects) => new Set(effects).size

/**
 * Out of order is an effect of an event although one that came after it, of the same key, has had its effect already. The
 * last one of a key may come again: its process was killed before it could acknowledge it.
 */
export function judgeEffects(effects, { count, keys }) {
  const places = placesOf(count, keys)
  const highest = new Int32Array(keys).fill(-1)
  let [outOfOrder, again] = [0, 0]
  for (const i of effects) {
    const key = keyNumberOf(i, keys)
    if (places[i] < highest[key]) outOfOrder += 1
    else if (places[i] === highest[key]) again += 1
    else highest[key] = places[i]
  }
  return { outOfOrder, again, missing: count - countDone(effects) }
}

function placesOf(count, keys) {
  const next = eventSource(keys)
  return Int32Array.from({ length: count }, (_, i) => placeOf(next(i).data))
}
