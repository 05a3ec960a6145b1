/** Whether Redis answers, for /readyz: asked with something cheap, once at a time however many want to know. */
import type { Bus } from '../bus.ts'
import { BusbarError } from '../errors.ts'

const readyMs = 1_000

/** Answers undefined when Redis answers, else what is wrong; within a second either way. */
export function readinessCheck(bus: Bus): () => Promise<unknown> {
  let asked: Promise<unknown> | undefined
  return async () => {
    asked ??= bus.log.get('0-1').finally(() => {
      asked = undefined
    })
    let timer: NodeJS.Timeout | undefined
    const late = new Promise<never>((_, reject) => {
      const problem = `no answer within ${readyMs} ms`
      timer = setTimeout(() => reject(BusbarError.of('REDIS_UNAVAILABLE', { problem })), readyMs)
    })
    try {
      await Promise.race([asked, late])
      return undefined
    } catch (error) {
      return error
    } finally {
      clearTimeout(timer)
    }
  }
}
