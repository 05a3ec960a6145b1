/**
 * BullMQ's Worker over jobs that wait already, each posted by undici: one request per event, concurrency 100, a Pool of kept
 * connections for each origin. Nothing is signed. Completed jobs are removed at once.
 */
import { Queue, Worker } from 'bullmq'
import { Pool } from 'undici'
import { nothingLeft } from '../harness/flow.mjs'
import { Receiver } from '../harness/receiver.mjs'
import { dataOf, nowMs, subscriptionOf } from '../harness/webhook.mjs'
import { left, remove } from './bullmq-process.mjs'

const concurrency = 100
const perCall = 1_000
const headers = { 'content-type': 'application/json' }

export async function open({ redis, count, ports, ...shape }) {
  const receiver = await Receiver.start({ ports })
  await receiver.expect({ count, ...shape })
  const connection = { host: redis.host, port: redis.port }
  const queue = new Queue('bench', { connection })
  const jobs = Array.from({ length: count }, (_, i) => ({ name: 'order.paid', data: dataOf(i) }))
  for (let at = 0; at < count; at += perCall) await queue.addBulk(jobs.slice(at, at + perCall))
  // As many connections as jobs at once, over all of them.
  const pools = receiver.origins.map((origin) => new Pool(origin, { connections: Math.ceil(concurrency / ports) + 1 }))
  const post = async ({ data }) => {
    const n = subscriptionOf(data.i, shape)
    const request = { method: 'POST', path: `/${n}`, headers, body: JSON.stringify(data) }
    const { statusCode, body } = await pools[n % ports].request(request)
    await body.dump()
    if (statusCode >= 300) throw new Error(`answered ${statusCode}`)
  }
  const worker = new Worker('bench', post, { connection, concurrency, autorun: false, ...remove })
  await Promise.all([queue.waitUntilReady(), worker.waitUntilReady()])
  return {
    async work() {
      const startedAt = nowMs()
      worker.run() // answers when the worker is closed
      const { lastAt } = await receiver.until(count)
      await nothingLeft(() => left(queue))
      const { problems } = await receiver.report()
      return { perSecond: (count / (lastAt - startedAt)) * 1000, problems }
    },
    async close() {
      await worker.close()
      await queue.close()
      await Promise.all(pools.map((pool) => pool.close()))
      receiver.stop()
    },
  }
}
