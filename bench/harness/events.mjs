/**
 * The events every contender publishes: 120 bytes of JSON, spread over the keys at random but repeatably.
 *
 * Event i always has the same key and the same data, so the verifier can tell from i alone what must be in the log.
 * `n` counts the events of one key in call order: it shows whether a key stayed in order. Both numbers have a fixed
 * width, so every event has the same size.
 */

export const dataBytes = 120
export const defaultKeys = 50_000
export const defaultTenants = 100

const firstN = 1_000_000
const firstI = 100_000_000
const note = 'x'.repeat(dataBytes - JSON.stringify({ n: firstN, i: firstI, note: '' }).length)

/** Murmur3's finaliser: neighbours in i land on unrelated keys, and now and then one key is in flight twice. */
function scatter(i) {
  let h = i + 1
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b)
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35)
  return (h ^ (h >>> 16)) >>> 0
}

/** Hands out events 0, 1, 2, … in call order. */
export function eventSource(keys = defaultKeys) {
  const names = Array.from({ length: keys }, (_, k) => `order:${k}`)
  const seen = new Uint32Array(keys)
  return (i) => {
    const k = scatter(i) % keys
    const n = seen[k]
    seen[k] = n + 1
    return { key: names[k], data: { n: firstN + n, i: firstI + i, note } }
  }
}

/** What the first `count` events must look like in the log: key and n by event number. */
export function expectedEvents(count, keys = defaultKeys) {
  const next = eventSource(keys)
  const expected = new Array(count)
  for (let i = 0; i < count; i += 1) {
    const { key, data } = next(i)
    expected[i] = { key, n: data.n }
  }
  return expected
}

/**
 * Whose events are whose: answers the tenant of event i. All events of a key are one tenant's as long as the number of
 * keys is a multiple of that of tenants.
 */
export function tenantSource(tenants = defaultTenants) {
  const names = Array.from({ length: tenants }, (_, t) => `tenant-${t}`)
  return (i) => names[scatter(i) % tenants]
}

/** The event's number, read back from its data. */
export const numberOf = (data) => data.i - firstI

/** The event's place among those of its key, from 0 on, read back from its data. */
export const placeOf = (data) => data.n - firstN

/** The number of the key of event i. */
export const keyNumberOf = (i, keys = defaultKeys) => scatter(i) % keys

/** The number of the key of each of the first `count` events. */
export const keyNumbers = (count, keys) => Uint32Array.from({ length: count }, (_, i) => keyNumberOf(i, keys))
