/** A queue is in the table before its store is made; whoever uses it by name in between waits for that. */
import { expect, test } from 'vitest'
import type { Bus } from '../../src/bus.ts'
import { queueKeys } from '../../src/redis/keys.ts'
import { freshNamespace, plainRedis, testBus } from '../support/bus.ts'

test('sending to it by name waits until the store is there', async () => {
  const namespace = freshNamespace()
  await (testBus({ namespace }) as Bus).queues.put('mail', {})
  const redis = plainRedis()
  const { store } = queueKeys(namespace, 'mail')
  await redis.rename(store, `${store}.to-come`)
  const queue = await (testBus({ namespace }) as Bus).queues.open('mail')
  const sent = queue.send('hello')
  const early = await Promise.race([
    sent.then(() => 'sent'),
    new Promise((resolve) => setTimeout(resolve, 100, 'waits')),
  ])
  expect(early).toBe('waits')
  await redis.rename(`${store}.to-come`, store)
  expect((await sent).duplicate).toBe(false)
})
