/**
 * Who may move a cursor, and how far.
 *
 * **Stale epochs.** A worker says `gained` after Redis has granted it the partition under a new epoch: the grant took
 * effect before that moment. The proxy passes a commit on at a moment of its own: it takes effect after that. So a commit
 * under an older epoch that was passed on after someone had gained a newer one, and that Redis answered with 'done', was
 * accepted although it was stale; no clock but the machine's one is involved, and no other order of the two is possible.
 *
 * **Cursors.** A commit says that everything up to its cursor is done, so at the moment it is passed on every event up to
 * there has been handled to its end by someone. The same holds for every cursor seen in Redis, which never goes back, and
 * for the one with which a new owner begins: what it jumps over would be lost to everyone.
 */
import { groupSorted } from './index.mjs'

const byTime = (a, b) => a.t - b.t

/** Answers { refused, found }: how many stale commits came and were refused, and those that were not. */
export function findStaleCommits({ of }) {
  const gains = groupSorted(of('gained'), ({ partition }) => partition, byTime)
  const newest = new Map([...gains].map(([partition, list]) => [partition, runningMaximum(list)]))
  const found = []
  let refused = 0
  for (const { t, worker, partition, epoch, cursor, word } of of('commit')) {
    if (word === 'stale') refused += 1
    if (word !== 'done') continue
    const newer = lastBefore(newest.get(partition) ?? [], t)
    if (newer && newer.epoch > epoch)
      found.push(
        `partition ${partition}: a commit of ${worker} to ${cursor} under epoch ${epoch} was accepted ` +
          `after ${newer.worker} had gained epoch ${newer.epoch}`,
      )
  }
  return { refused, found }
}

function runningMaximum(gains) {
  let highest
  return gains.map((gain) => {
    if (!highest || gain.epoch > highest.epoch) highest = gain
    return { t: gain.t, epoch: highest.epoch, worker: highest.worker }
  })
}

/** Answers { looked, found }. */
export function findWrongCursors({ events, of }) {
  const partitions = groupSorted(
    [...events.values()],
    ({ partition }) => partition,
    (a, b) => a.seq - b.seq,
  )
  const doneAt = new Map([...partitions].map(([partition, list]) => [partition, whenDone(list)]))
  const samples = of('sample')
  const seen = [
    ...of('commit').map((fact) => ({ ...fact, by: `a commit of ${fact.worker}`, at: fact.t })),
    ...samples.map((fact) => ({ ...fact, by: 'a look at Redis', at: fact.answeredAt })),
    ...of('gained').map((fact) => ({ ...fact, by: `what ${fact.worker} gained`, at: fact.t })),
  ]
  const found = []
  for (const { by, at, partition, cursor } of seen) {
    const open = lastUpTo(doneAt.get(partition) ?? [], cursor)
    if (open && open.at > at)
      found.push(`partition ${partition}: ${by} says ${cursor}, but ${open.id} was not handled yet`)
  }
  for (const [partition, list] of groupSorted(samples, ({ partition }) => partition, byTime))
    for (let i = 1; i < list.length; i += 1)
      if (list[i].cursor < list[i - 1].cursor || list[i].epoch < list[i - 1].epoch)
        found.push(`partition ${partition}: cursor or epoch went back from ${shown(list[i - 1])} to ${shown(list[i])}`)
  return { looked: seen.length, found }
}

const shown = ({ cursor, epoch }) => `${cursor} (epoch ${epoch})`

/** Per event, in order of seq: when it and all before it were done, and which one came last. */
function whenDone(list) {
  let latest = { at: 0, id: '' }
  return list.map(({ seq, id, firstEnd }) => {
    if (firstEnd > latest.at) latest = { at: firstEnd, id }
    return { seq, ...latest }
  })
}

const lastUpTo = (list, seq) => last(list, (one) => one.seq <= seq)
const lastBefore = (list, t) => last(list, (one) => one.t < t)

/** The last of a sorted list that fits, when all before it fit too. */
function last(list, fits) {
  let low = 0
  let high = list.length
  while (low < high) {
    const middle = (low + high) >> 1
    if (fits(list[middle])) low = middle + 1
    else high = middle
  }
  return list[low - 1]
}
