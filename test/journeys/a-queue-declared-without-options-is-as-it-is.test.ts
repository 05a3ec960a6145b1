/** Who only sends need not know how a queue is defined, and changes nothing for those who do. */
import { expect, onTestFinished, test } from 'vitest'
import type { Bus } from '../../src/bus.ts'
import { freshNamespace, plainRedis, testBus } from '../support/bus.ts'
import { startRedis } from '../support/redis.ts'

test('sending, claiming and running leave the definition alone', async () => {
  const namespace = freshNamespace()
  const bus = testBus({ namespace }) as Bus
  await bus.queues.put('mail', { match: 'mail.*', weights: { acme: 3 }, retry: { attempts: 8 } })
  const { revision, ...before } = await bus.queues.get('mail')

  const sender = testBus({ namespace }) as Bus
  const queue = sender.queue('mail')
  await queue.send('hello')
  await sender.run({ signals: false })
  expect((await queue.claim()).items).toHaveLength(1)
  const after = await bus.queues.get('mail')
  expect(after).toMatchObject({ revision, match: before.match, weights: { acme: 3 }, attempts: 8 })
})

test('one that nobody has defined is made, for what is sent', async () => {
  const bus = testBus() as Bus
  await bus.queue('mail').send('hello')
  expect(await bus.queues.get('mail')).toMatchObject({ match: null, waiting: 1 })
})

test('empty options are options: they change it', async () => {
  const namespace = freshNamespace()
  const bus = testBus({ namespace }) as Bus
  await bus.queues.put('mail', { match: 'mail.*' })
  await (testBus({ namespace }) as Bus).queue('mail', {}).send('hello')
  expect(await bus.queues.get('mail')).toMatchObject({ match: null })
})

test('a new queue looks at no other: declaring many costs each what it costs one', async () => {
  const server = await startRedis()
  onTestFinished(() => server.stop())
  const bus = testBus({ redis: server.url }) as Bus
  for (let n = 0; n < 20; n += 1) bus.queue(`queue-${n}`, n % 2 === 0 ? { match: `order.${n}` } : undefined)
  await bus.run({ signals: false })
  expect(await bus.subscriptions.list()).toHaveLength(20)
  // The names of all are asked for only to say what was meant by one that is not there.
  expect(await plainRedis(server.url).info('commandstats')).not.toMatch(/cmdstat_hkeys/)
})
