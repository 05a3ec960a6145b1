/**
 * Busbar's consumer group as it lies in Redis: who owns which partition, and how far each is committed. It reads the keys
 * themselves, not what Busbar says of them.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { logStreams } from './verify.mjs'

export const processorName = 'bench'
const group = `bench:{group.stream.${processorName}}`
const divisionTimeoutMs = 60_000
const commitTimeoutMs = 60_000

/**
 * Waits until so many workers own all partitions evenly and none is still to be handed over.
 *
 * @returns {Promise<Map<string, string>>} partition → owner
 */
export async function dividedAmong(redis, workers, partitions = 16) {
  const deadline = Date.now() + divisionTimeoutMs
  for (;;) {
    const owners = ownersAtRest(await redis.hgetall(`${group}:owners`))
    if (owners?.size === partitions && isEven([...owners.values()], workers)) return owners
    if (Date.now() > deadline) throw new Error(`the partitions are not divided among ${workers} workers`)
    await sleep(10)
  }
}

/** The seq of the last event of each partition that has one: partition → seq. */
export async function lastSeqs(redis) {
  const seqs = new Map()
  for (const log of await logStreams(redis, 'bench')) {
    const [, partition] = /\{(\d+)\./.exec(log)
    const [[id]] = await redis.xrevrange(log, '+', '-', 'COUNT', 1)
    seqs.set(partition, Number(id.split('-')[0]))
  }
  return seqs
}

/** Waits until everything up to these seqs is committed. Without a pause it takes a core: for the very end only. */
export async function committedUpTo(redis, lastSeqs, { pauseMs } = {}) {
  const deadline = Date.now() + commitTimeoutMs
  const partitions = [...lastSeqs.keys()]
  const seqs = [...lastSeqs.values()]
  for (;;) {
    const cursors = await readCursors(redis, partitions)
    if (cursors.every((cursor, n) => cursor >= seqs[n])) return
    if (Date.now() > deadline) throw new Error('not everything is committed')
    if (pauseMs) await sleep(pauseMs)
  }
}

/** The seq up to which each of these partitions is committed; 0 for nothing yet. */
export async function readCursors(redis, partitions) {
  const cursors = await redis.hmget(`${group}:cursors`, ...partitions)
  return cursors.map(Number)
}

/** How many partitions have another owner. */
export const moved = (before, after) =>
  [...after].filter(([partition, owner]) => before.get(partition) !== owner).length

/** Undefined while a partition has no owner or is wanted by another. An entry is "<owner> <epoch> <release> <wanted>". */
function ownersAtRest(stored) {
  const owners = new Map()
  for (const [partition, entry] of Object.entries(stored)) {
    const [owner, , release, wanted] = entry.split(' ')
    if (owner === '-' || release !== '0' || (wanted !== '-' && wanted !== owner)) return undefined
    owners.set(partition, owner)
  }
  return owners
}

function isEven(owners, workers) {
  const shares = new Map()
  for (const owner of owners) shares.set(owner, (shares.get(owner) ?? 0) + 1)
  const counts = [...shares.values()]
  return counts.length === workers && Math.max(...counts) - Math.min(...counts) <= 1
}
