/* Search in pages that are opened from the disk: browsers start no worker for a file.

   There, `Worker` becomes a hidden frame that runs the same script, which finds the functions that
   a worker has. Everywhere else this file does nothing. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      const answer = (data) => {
        const message = new MessageEvent("message", { data });
        this.dispatchEvent(message);
        if (this.onmessage) this.onmessage(message);
      };
      inside.postMessage = answer;
      inside.importScripts = (...names) =>
        Promise.all(names.map((name) => load(inside, new URL(name, address))));
      this.ready = load(inside, address);
    }

    postMessage(data) {
      const inside = this.frame.contentWindow;
      this.ready.then(() => inside.dispatchEvent(new inside.MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  };

  function load(inside, address) {
    return new Promise((done, failed) => {
      const script = inside.document.createElement("script");
      script.src = address;
      script.onload = done;
      script.onerror = failed;
      inside.document.body.append(script);
    });
  }
}
