/** The receiver's process (receiver-process.mjs) as its sender sees it. It ends with its sender. */
import { fork } from 'node:child_process'
import { unlessStalled } from './tally.mjs'

const file = new URL('./receiver-process.mjs', import.meta.url)

export class Receiver {
  /** Arrived so far, as last heard. */
  seen = 0
  #child
  #origins
  #asked = 0
  #waiting = new Map()

  /** It listens on so many ports. */
  static async start({ ports }) {
    const receiver = new Receiver()
    const listening = await receiver.#ask('listen', { ports })
    receiver.#origins = listening.map((port) => `http://127.0.0.1:${port}`)
    return receiver
  }

  constructor() {
    this.#child = fork(file, { serialization: 'advanced' })
    this.#child.on('message', ({ n, answer }) => {
      this.#waiting.get(n)(answer)
      this.#waiting.delete(n)
    })
  }

  get origins() {
    return this.#origins
  }

  /** Where the events of a subscription belong. */
  url(subscription) {
    return `${this.#origins[subscription % this.#origins.length]}/${subscription}`
  }

  /** What will arrive: so many events, divided so. */
  expect(shape) {
    return this.#ask('expect', shape)
  }

  /** Waits until so many events have arrived; not for one that never comes. Answers when the last of them did. */
  async until(count) {
    const watch = setInterval(async () => {
      this.seen = await this.#ask('seen')
    }, 1_000)
    try {
      return await unlessStalled(this, this.#ask('until', { count }))
    } finally {
      clearInterval(watch)
    }
  }

  report() {
    return this.#ask('report')
  }

  stop() {
    this.#child.disconnect()
  }

  #ask(ask, about = {}) {
    const n = this.#asked++
    return new Promise((resolve) => {
      this.#waiting.set(n, resolve)
      this.#child.send({ n, ask, about })
    })
  }
}
