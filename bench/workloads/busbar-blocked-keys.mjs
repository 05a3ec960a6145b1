/**
 * What it costs to claim one item of an ordered queue with so many keys, two items each: all of them free, or all but one
 * blocked, half of them held by another worker, half waiting for a retry. The free one has as many items as are claimed. Each
 * claim is acknowledged before the next; only the claims are measured.
 */

import { Redis } from 'ioredis'
import { busbar } from '../../dist/index.js'
import { eventSource } from '../harness/events.mjs'
import { ordered, queueName } from '../harness/queue.mjs'
import { scriptMicros } from '../harness/script-micros.mjs'
import { slidingWindow } from '../harness/window.mjs'

const claims = 1_000
const tenants = 100
const itemsPerKey = 2
const freeKey = 0

/** @param {{ keys: number, isBlocked: boolean }} options */
export async function open({ redis, keys, isBlocked }) {
  const options = { redis: redis.url, namespace: 'bench' }
  const [bus, other] = [busbar({ ...options, worker: 'w1' }), busbar({ ...options, worker: 'w2' })]
  const definition = { ...ordered, lease: '10m' }
  const queue = bus.queue(queueName, definition)
  const control = new Redis({ host: redis.host, port: redis.port })

  return {
    async work() {
      await fill(queue, keys)
      if (isBlocked) await blockAllButOne(other.queue(queueName, definition), keys)
      const figures = await measureClaims(queue, control)
      const { waiting, behind, later, held } = await bus.queues.get(queueName)
      const left = waiting + behind + later + held
      const expected = keys * itemsPerKey
      return { ...figures, problems: left === expected ? [] : [`${left} items are left, not ${expected}`] }
    },
    async close() {
      await Promise.all([bus.close(), other.close()])
      await control.quit()
    },
  }
}

async function fill(queue, keys) {
  const { data } = eventSource()(0)
  const count = keys * itemsPerKey + claims
  const call = (i) => {
    const key = i < keys * itemsPerKey ? i % keys : freeKey
    return queue.send(data, { tenant: `tenant-${key % tenants}`, key: `order:${key}` })
  }
  await slidingWindow({ width: 1_000, count, call })
}

/** The first item of every key is claimed, and of every second one to be tried again in an hour. */
async function blockAllButOne(queue, keys) {
  for (let claimed = 0; claimed < keys; ) {
    const { items } = await queue.claim({ max: 1_000 })
    if (items.length === 0) throw new Error(`nothing to claim after ${claimed} of ${keys} keys`)
    claimed += items.length
    await Promise.all(items.map((item, n) => block(item, n)))
  }
}

function block(item, n) {
  if (item.event.key === `order:${freeKey}`) return item.retry('0ms')
  return n % 2 === 0 ? item.retry('1h') : undefined
}

async function measureClaims(queue, control) {
  let [redisMicros, wallMs] = [0, 0]
  for (let n = 0; n < claims; n += 1) {
    await control.config('RESETSTAT')
    const startedAt = performance.now()
    const { items } = await queue.claim({ max: 1 })
    wallMs += performance.now() - startedAt
    redisMicros += await scriptMicros(control)
    if (items.length !== 1) throw new Error(`nothing to claim after ${n} claims`)
    await items[0].ack()
  }
  return { redisMicros: redisMicros / claims, wallMicros: (wallMs * 1000) / claims }
}
