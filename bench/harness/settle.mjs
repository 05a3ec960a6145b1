/**
 * Brings Redis back to rest, so that no measurement pays for the one before it: nothing is rewriting, no fsync is
 * pending, nothing is being freed in the background.
 */
import { setTimeout as sleep } from 'node:timers/promises'

const quietFields = ['aof_rewrite_in_progress', 'aof_rewrite_scheduled', 'aof_pending_bio_fsync', 'aof_buffer_length']
const timeoutMs = 60_000

/** Empties Redis, drops its append-only file by rewriting it, and waits until it is calm. */
export async function flushAndSettle(redis) {
  await redis.flushall('SYNC')
  await redis.script('FLUSH', 'SYNC')
  await redis.bgrewriteaof()
  await settle(redis)
}

/** Waits until Redis is calm; keeps the data. */
export async function settle(redis) {
  const deadline = Date.now() + timeoutMs
  while (!(await isCalm(redis))) {
    if (Date.now() > deadline) throw new Error(`Redis is still busy after ${timeoutMs / 1000} s`)
    await sleep(50)
  }
  await sleep(200) // the kernel's own writing-back of what was just dropped
}

export async function usedMemory(redis) {
  return Number(infoFields(await redis.info('memory')).get('used_memory'))
}

async function isCalm(redis) {
  const persistence = infoFields(await redis.info('persistence'))
  const memory = infoFields(await redis.info('memory'))
  return (
    quietFields.every((field) => Number(persistence.get(field)) === 0) && memory.get('lazyfree_pending_objects') === '0'
  )
}

function infoFields(info) {
  return new Map(info.split('\r\n').map((line) => line.split(':', 2)))
}
