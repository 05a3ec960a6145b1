/** BullMQ: two Workers, to be killed at any time; what a dead one held is taken up as soon as Busbar's is. */
import { Worker } from 'bullmq'
import { effectWriter } from '../harness/effects.mjs'
import { numberOf } from '../harness/events.mjs'
import { concurrency, handleWithLuck, leaseMs, workersPerProcess } from '../harness/luck.mjs'
import { remove } from './bullmq-process.mjs'

const stalled = { lockDuration: leaseMs, stalledInterval: leaseMs / 2, maxStalledCount: 1_000 }

export async function open({ redis, file }) {
  const connection = { host: redis.host, port: redis.port }
  const write = effectWriter(file)
  const handle = ({ data }) => handleWithLuck(() => write(numberOf(data)))
  const workers = Array.from(
    { length: workersPerProcess },
    () => new Worker('bench', handle, { connection, concurrency, ...stalled, ...remove }),
  )
  await Promise.all(workers.map((worker) => worker.waitUntilReady()))
  return { close: () => Promise.all(workers.map((worker) => worker.close())) }
}
