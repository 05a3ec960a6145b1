import { expect, inject, onTestFinished, test } from 'vitest'
import { connect } from '../src/redis/connection.ts'
import { createHints } from '../src/redis/hints.ts'
import { systemClock } from '../src/runtime/clock.ts'
import { createTelemetry } from '../src/runtime/telemetry.ts'
import { freshNamespace, plainRedis } from './support/bus.ts'
import { eventually } from './support/eventually.ts'
import { startProxy } from './support/proxy.ts'

test('whoever listens is subscribed when that is answered, also the second one of a channel', async () => {
  const proxy = await startProxy({ target: { socketPath: inject('redisSocket') } })
  const context = { clock: systemClock, telemetry: createTelemetry(Date.now) }
  const connection = connect(context, proxy.url, 'hints')
  onTestFinished(async () => {
    connection.close()
    await proxy.stop()
  })
  await connection.whenReady(5_000)
  const hints = createHints(connection)
  const redis = plainRedis()
  const channel = freshNamespace()
  const heard: string[] = []
  const answered: string[] = []
  proxy.next('SUBSCRIBE', 'hold')
  const listening = ['first', 'second'].map(async (name) => {
    await hints.listen(channel, (message) => heard.push(`${name} ${message}`))
    answered.push(name)
  })
  await eventually(() => proxy.held.length === 1)
  await redis.ping()
  expect(answered).toEqual([])
  proxy.release()
  await Promise.all(listening)
  await redis.publish(channel, 'x')
  await eventually(() => heard.length === 2)
  expect(heard).toEqual(['first x', 'second x'])
})
