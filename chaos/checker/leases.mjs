/**
 * Who held what, and how it came free. From what the proxies saw: each claim says by the server's clock when it gave what to
 * whom and for how long; each settlement, renewal, extension and takeover by name says how that changed.
 *
 * For each item its grants are put in the server's order. Between two of them under different tokens lies a release, or there
 * were two live leases:
 *
 *   retry, back, throttle, extend to 0    its holder gave it back
 *   redriven                              it was a dead letter and was put back in line
 *   taken over                            its holder's name was taken over by a new start of it
 *   lapsed                                the lease had ended by the server's clock; no renewal that was answered says otherwise
 *   Redis restarted                       with it the last moments may have been undone
 *
 * An ack, a burial and a pop are final: what is given again after one is a violation, unless Redis was restarted.
 */
import { groupSorted } from './index.mjs'

const byTime = (a, b) => a.t - b.t
const toleranceUs = 5_000
const isFinal = new Set(['ack', 'dead'])
/** So much may be undone by a crash of Redis: AOF everysec, and a write that waits for one that is slow. */
export const undoneUs = 2_000_000

/** Answers { items, serverUs, restarts }; items: "queue id" → { queue, id, grants, settles }. */
export function readLeases({ of }) {
  const clock = [...of('clock')].sort(byTime)
  // One clock has no beginning, the other is set now and then: the difference is noted all along.
  const offsetAt = (t) => (lastBefore(clock, t) ?? clock[0] ?? { offsetUs: 0 }).offsetUs
  const serverUs = (t) => t + offsetAt(t)
  const items = new Map()
  const item = (queue, id) => {
    const key = `${queue} ${id}`
    const known = items.get(key)
    if (known) return known
    const fresh = { queue, id, grants: [], settles: [], begins: [], ends: [], redriven: [], isDiscarded: false }
    items.set(key, fresh)
    return fresh
  }
  const leases = new Map()
  const leaseOf = (queue, token) => `${queue} ${token}`
  const lasts = (queue, token, end, by, latest = end) => {
    const key = leaseOf(queue, token)
    const ends = leases.get(key)
    if (ends) ends.push({ end, by, latest })
    else leases.set(key, [{ end, by, latest }])
  }
  for (const { queue, token, now, leaseMs, ids, attempts, worker, busName, t, answeredAt } of of('granted')) {
    const at = now * 1000
    lasts(queue, token, at + leaseMs * 1000, at)
    for (const [i, id] of ids.entries())
      item(queue, id).grants.push({ at, t, answeredAt, place: i, token, worker, busName, attempts: attempts[i] })
  }
  for (const { queue, token, id, own, now, leaseMs, word, worker, busName, t, answeredAt } of of('extended')) {
    if (word === 'stale' || word === 'gone') continue
    const settle = { t, answeredAt, token, worker, outcome: 'extend', word: word === 'unsure' ? word : 'settled' }
    item(queue, id).settles.push(settle)
    if (word !== 'extended') continue
    const at = now * 1000
    lasts(queue, own, at + leaseMs * 1000, at)
    item(queue, id).grants.push({
      at,
      t,
      answeredAt,
      place: 0,
      token: own,
      worker,
      busName,
      attempts: -1,
      isExtension: true,
    })
  }
  // Carried out at some time between the two.
  for (const { queue, tokens, leaseMs, t, answeredAt } of of('renewed'))
    for (const token of tokens)
      lasts(queue, token, serverUs(t) + leaseMs * 1000, serverUs(t), serverUs(answeredAt) + leaseMs * 1000)
  for (const fact of of('settled')) item(fact.queue, fact.id).settles.push(fact)
  for (const fact of of('began')) item(fact.queue, fact.id).begins.push(fact)
  for (const fact of of('ended')) item(fact.queue, fact.id).ends.push(fact)
  for (const { queue, ids, t } of of('redriven')) for (const id of ids) item(queue, id).redriven.push(t)
  for (const { queue, ids } of of('discarded')) for (const id of ids) item(queue, id).isDiscarded = true
  for (const { grants, begins } of items.values()) {
    grants.sort((a, b) => a.at - b.at || a.answeredAt - b.answeredAt)
    begins.sort(byTime)
  }
  /** By the server's clock: when the lease ended at the latest, as far as is certain before this moment. */
  const endOf = (queue, token, before) =>
    Math.max(0, ...leases.get(leaseOf(queue, token)).flatMap(({ end, by }) => (by <= before ? [end] : [])))
  const latestEndOf = (queue, token) => Math.max(...leases.get(leaseOf(queue, token)).map(({ latest }) => latest))
  return { items, serverUs, endOf, latestEndOf }
}

/** Answers { links, repeats, found }: each way from one grant to the next, with its cause. */
export function findReleases(history, { items, serverUs, endOf }, { restartName }) {
  const faults = history.of('fault')
  const restarts = faults.filter(({ fault }) => fault === restartName)
  const entered = groupSorted(history.of('entered'), ({ queue, name }) => `${queue} ${name}`, byTime)
  const links = []
  const found = []
  for (const item of items.values()) {
    const { grants, queue, id } = item
    for (let i = 1; i < grants.length; i += 1) {
      const [first, second] = [grants[i - 1], grants[i]]
      if (first.token === second.token || second.isExtension) continue
      const cause = causeOf(item, first, second)
      links.push({ queue, id, first, second, cause })
      if (cause) continue
      const earlyMs = ((endOf(queue, first.token, second.at) - second.at) / 1000).toFixed(0)
      found.push(
        `${queue} ${id}: given to ${second.worker} while ${first.worker} had it for ${earlyMs} ms more` +
          `${isOver(item, first) ? ', after its end' : ''}`,
      )
    }
  }
  return { links, found }

  function causeOf(item, first, second) {
    const { queue, settles, redriven } = item
    const own = settles.filter(
      ({ token, t, word }) => token === first.token && word !== 'stale' && t <= second.answeredAt,
    )
    if (redriven.some((t) => t >= first.t && t <= second.answeredAt)) return 'redriven'
    const released = own.find(({ outcome }) => !isFinal.has(outcome))
    if (released) return released.outcome
    if (isOver(item, first)) return undoneBetween(first, second)
    const taken = entered.get(`${queue} ${first.busName}`) ?? []
    if (
      first.busName !== '-' &&
      taken.some(({ worker, t }) => worker !== first.worker && t >= first.t && t <= second.answeredAt)
    )
      return 'taken over'
    if (endOf(queue, first.token, second.at) <= second.at + toleranceUs) return 'lapsed'
    return undoneBetween(first, second)
  }

  function undoneBetween(first, second) {
    const isBetween = ({ t, until }) => serverUs(t) - undoneUs <= second.at && serverUs(until) >= first.at
    return restarts.some(isBetween) ? restartName : undefined
  }
}

const isOver = ({ settles }, { token }) =>
  token === '' || settles.some((one) => one.token === token && isFinal.has(one.outcome) && one.word === 'settled')

function lastBefore(list, t) {
  let low = 0
  let high = list.length
  while (low < high) {
    const middle = (low + high) >> 1
    if (list[middle].t < t) low = middle + 1
    else high = middle
  }
  return list[low - 1]
}
